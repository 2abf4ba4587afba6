//! `IdempotencyKeyLayer`: who gets a key, and what it looks like.

use std::{collections::HashSet, convert::Infallible};

use http::{HeaderValue, Request};
use tower::{Layer, ServiceExt, service_fn};
use tower_retry_layer::http::IdempotencyKeyLayer;

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
