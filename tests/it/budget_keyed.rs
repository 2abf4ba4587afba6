//! `Keyed`: one budget a key, and a bound on the keys.

use std::sync::Arc;

use tower_retry_layer::budget::{Budget, Keyed, TokenBudget, Unlimited};

use crate::budget::{drain, on_threads};

#[test]
fn one_bad_upstream_does_not_starve_the_others() {
    let budgets = keyed(10);
    assert_eq!(drain(&budgets.get("bad")), 5);
    assert_eq!(drain(&budgets.get("bad")), 0);
    assert_eq!(drain(&budgets.get("good")), 5);
    assert_eq!(budgets.len(), 2);
}

#[test]
fn a_key_gets_the_same_budget_however_it_is_asked_for() {
    let budgets = keyed(10);
    let first = budgets.get("host");
    assert!(Arc::ptr_eq(&first, &budgets.get(&String::from("host"))));
    let shared: Arc<dyn Budget> = first;
    assert!(shared.withdraw());
    assert_eq!(budgets.get("host").balance(), 4);
}

#[test]
fn keys_beyond_the_limit_share_one_bounded_budget() {
    let budgets = keyed(3);
    let hosts: Vec<_> = (0..1_000).map(|host| format!("{host}.example")).collect();
    let retries: usize = hosts.iter().map(|host| drain(&budgets.get(host))).sum();
    assert_eq!(retries, 3 * 5 + 5);
    assert_eq!(budgets.len(), 3);
    assert!(Arc::ptr_eq(
        &budgets.get("3.example"),
        &budgets.get("999.example")
    ));
    assert!(!Arc::ptr_eq(
        &budgets.get("2.example"),
        &budgets.get("3.example")
    ));
}

#[test]
fn with_a_limit_of_zero_all_keys_share() {
    let budgets = keyed(0);
    assert!(Arc::ptr_eq(&budgets.get("a"), &budgets.get("b")));
    assert!(budgets.is_empty());
}

#[test]
fn a_removed_key_makes_room_and_starts_anew() {
    let budgets = keyed(1);
    drain(&budgets.get("a"));
    assert_eq!(budgets.remove("a").unwrap().balance(), 0);
    assert!(budgets.remove("a").is_none());
    assert_eq!(drain(&budgets.get("b")), 5);
    assert_eq!(budgets.len(), 1);
}

#[test]
fn threads_that_meet_new_keys_together_agree_and_keep_the_limit() {
    for _ in 0..200 {
        let budgets = keyed(2);
        let retries = on_threads(|| {
            ["a", "b", "c"]
                .map(|key| drain(&budgets.get(key)))
                .iter()
                .sum()
        });
        assert_eq!(retries, 3 * 5);
        assert_eq!(budgets.len(), 2);
    }
}

#[test]
fn a_maker_may_ask_for_another_key_and_may_panic() {
    let outer = Arc::new(keyed(10));
    let inner = outer.clone();
    let budgets = Keyed::<u8, _>::new(10, move || inner.get("shared by all"));
    drain(&budgets.get(&1));
    assert_eq!(budgets.get(&2).balance(), 0);

    let calls = std::sync::atomic::AtomicUsize::new(0);
    let budgets = Keyed::<u8, _>::new(10, move || {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        assert_ne!(call, 1, "the first key's maker fails");
        Unlimited
    });
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| budgets.get(&1)));
    assert!(failed.is_err());
    assert!(budgets.is_empty());
    assert!(budgets.get(&1).withdraw());
    assert_eq!(budgets.len(), 1);
}

fn keyed(limit: usize) -> Keyed<String, TokenBudget> {
    Keyed::new(limit, || TokenBudget::new(5, 0.2).unwrap())
}
