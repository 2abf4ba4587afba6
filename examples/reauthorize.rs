//! What may have changed after a wait belongs in a layer *below* the retry layer.
//!
//! ```text
//! cargo run --example reauthorize
//! ```
//!
//! The server is busy at the first attempt of a request, and the token in use expires meanwhile.
//! Below the retry layer each attempt asks for the token anew, so the second brings a new one.
//! Above it the token is put on once, and every copy carries the old one. The same goes for a
//! permission, a route, or a document of which the latest version is to be sent.

use std::sync::{Arc, Mutex};

use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_retry_layer::{RetryLayer, StandardPolicy, Verdict, classify_fn};

#[derive(Clone, Debug, Default)]
struct Request {
    token: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Busy,
    Expired,
}

#[derive(Default)]
struct Server {
    valid: u32,
    // The token of each attempt.
    saw: Vec<u32>,
}

impl Server {
    fn answer(&mut self, request: Request) -> Result<&'static str, Refusal> {
        self.saw.push(request.token);
        if self.saw.len() % 2 == 1 {
            self.valid += 1;
            Err(Refusal::Busy)
        } else if request.token == self.valid {
            Ok("welcome")
        } else {
            Err(Refusal::Expired)
        }
    }
}

#[tokio::main]
async fn main() {
    let server = Arc::new(Mutex::new(Server::default()));
    let ask = server.clone();
    let transport = service_fn(move |request| {
        let answer = ask.lock().unwrap().answer(request);
        async { answer }
    });
    let tokens = server.clone();
    let authorize = move |mut request: Request| {
        request.token = tokens.lock().unwrap().valid;
        request
    };
    let retry = RetryLayer::new(StandardPolicy::new(classify_fn(|attempt| {
        match attempt.outcome() {
            Ok(_) => Verdict::Success,
            Err(Refusal::Busy) => Verdict::Retry,
            Err(Refusal::Expired) => Verdict::Stop,
        }
    })));

    let below = ServiceBuilder::new()
        .layer(retry.clone())
        .map_request(authorize.clone())
        .service(transport.clone())
        .oneshot(Request::default())
        .await;
    let saw = std::mem::take(&mut server.lock().unwrap().saw);
    println!("below the retry layer: the server saw tokens {saw:?}: {below:?}");
    assert_eq!((saw, below), (vec![0, 1], Ok("welcome")));

    let above = ServiceBuilder::new()
        .map_request(authorize)
        .layer(retry)
        .service(transport)
        .oneshot(Request::default())
        .await;
    let saw = std::mem::take(&mut server.lock().unwrap().saw);
    println!("above the retry layer: the server saw tokens {saw:?}: {above:?}");
    assert_eq!((saw, above), (vec![1, 1], Err(Refusal::Expired)));
}
