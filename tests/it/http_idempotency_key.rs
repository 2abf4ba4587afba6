//! `IdempotencyKeyLayer`: who gets a key, and what it looks like.

use std::{collections::HashSet, convert::Infallible};

use http::{HeaderValue, Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::{
    Attempt, Protocol, Verdict,
    http::{Http, IdempotencyKeyLayer},
};

const NOTHING: [&str; 6] = ["", " ", "\t \t", "\"\"", "\" \"", " \"\t\" "];

#[tokio::test]
async fn post_and_patch_get_a_key_and_no_other_method() {
    let layer = IdempotencyKeyLayer::new();
    for method in ["POST", "PATCH"] {
        assert!(sent(&layer, method, None).await.is_some(), "{method}");
    }
    for method in [
        "GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY",
    ] {
        assert_eq!(sent(&layer, method, None).await, None, "{method}");
    }
}

#[tokio::test]
async fn a_key_that_is_there_stays() {
    let layer = IdempotencyKeyLayer::new();
    let mine = HeaderValue::from_static("\"mine\"");
    assert_eq!(sent(&layer, "POST", Some(mine.clone())).await, Some(mine));
}

#[tokio::test]
async fn a_key_of_nothing_is_none_and_is_replaced() {
    let layer = IdempotencyKeyLayer::with(|| HeaderValue::from_static("new"));
    for nothing in NOTHING {
        for method in ["POST", "PATCH"] {
            let key = sent(&layer, method, Some(HeaderValue::from_static(nothing))).await;
            assert_eq!(key, Some(HeaderValue::from_static("new")), "{nothing:?}");
        }
        // What other methods carry is the caller's business.
        let key = sent(&layer, "PUT", Some(HeaderValue::from_static(nothing))).await;
        assert_eq!(key, Some(HeaderValue::from_static(nothing)));
    }
    // Two fields are one too many for a server; the layer leaves no more than its own.
    let service = layer.layer(service_fn(async |request: Request<()>| {
        let keys = request.headers().get_all("idempotency-key").iter();
        Ok::<_, Infallible>(keys.cloned().collect::<Vec<_>>())
    }));
    let twice = |first, second| {
        Request::post("/")
            .header("idempotency-key", first)
            .header("idempotency-key", second)
            .body(())
            .unwrap()
    };
    let keys = service.clone().oneshot(twice("", " ")).await.unwrap();
    assert_eq!(keys, ["new"]);
    let keys = service.oneshot(twice("", "mine")).await.unwrap();
    assert_eq!(keys, ["", "mine"]);
}

#[test]
fn a_key_of_nothing_makes_no_request_idempotent() {
    let unavailable = || Response::builder().status(503).body(()).unwrap();
    let verdict = |keys: &[HeaderValue]| {
        let mut request = Request::post("/").body(()).unwrap();
        for key in keys {
            request.headers_mut().append("idempotency-key", key.clone());
        }
        let outcome = Ok::<_, Infallible>(unavailable());
        Http::new().classify(&Attempt::new(Some(&request), &outcome, 1))
    };
    let nothing = NOTHING.map(HeaderValue::from_static);
    for key in &nothing {
        assert_eq!(verdict(std::slice::from_ref(key)), Verdict::Stop, "{key:?}");
    }
    assert_eq!(verdict(&nothing), Verdict::Stop);
    let bytes = HeaderValue::from_bytes(b"\xff").unwrap();
    for key in [
        HeaderValue::from_static("0"),
        HeaderValue::from_static("\" k \""),
        bytes,
    ] {
        assert_eq!(
            verdict(std::slice::from_ref(&key)),
            Verdict::Retry,
            "{key:?}"
        );
        assert_eq!(verdict(&[nothing[0].clone(), key]), Verdict::Retry);
    }
}

#[tokio::test]
async fn keys_are_quoted_random_uuids_and_never_the_same() {
    const DRAWS: usize = 10_000;
    let mut seen = HashSet::new();
    for layer in [IdempotencyKeyLayer::new(), IdempotencyKeyLayer::default()] {
        for _ in 0..DRAWS {
            let key = sent(&layer.clone(), "POST", None).await.unwrap();
            let key = key.to_str().unwrap().to_owned();
            let uuid = key.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
            let groups: Vec<usize> = uuid.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{key}");
            let digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
            assert!(uuid.chars().all(|c| c == '-' || digit(c)), "{key}");
            assert_eq!(&uuid[14..15], "4", "{key}");
            assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"), "{key}");
            seen.insert(uuid.to_owned());
        }
    }
    assert_eq!(seen.len(), 2 * DRAWS);
    // Every bit but the six fixed ones is set in about half of them: six sigma of 20 000 draws.
    let value = |uuid: &String| u128::from_str_radix(&uuid.replace('-', ""), 16).unwrap();
    let values: Vec<u128> = seen.iter().map(value).collect();
    for bit in (0..128).filter(|bit| !matches!(bit, 62..=63 | 76..=79)) {
        let count = values
            .iter()
            .filter(|value| **value >> bit & 1 == 1)
            .count();
        assert!(count.abs_diff(DRAWS) < 425, "bit {bit}: {count}");
    }
}

#[tokio::test]
async fn keys_can_be_ones_own() {
    let layer = IdempotencyKeyLayer::with(|| HeaderValue::from_static("order-7"));
    let key = sent(&layer, "POST", None).await;
    assert_eq!(key, Some(HeaderValue::from_static("order-7")));
}

async fn sent(
    layer: &IdempotencyKeyLayer,
    method: &str,
    key: Option<HeaderValue>,
) -> Option<HeaderValue> {
    let service = layer.layer(service_fn(async |request: Request<()>| {
        Ok::<_, Infallible>(request.headers().get("idempotency-key").cloned())
    }));
    let mut request = Request::builder().method(method).body(()).unwrap();
    if let Some(key) = key {
        request.headers_mut().insert("idempotency-key", key);
    }
    service.oneshot(request).await.unwrap()
}
