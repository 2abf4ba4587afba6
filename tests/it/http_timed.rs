//! Waits, timeouts and an outage: hyper's client and server in memory, under the paused clock.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};
use tower::{ServiceBuilder, ServiceExt};
use tower_retry_layer::{
    RetryLayer, StandardPolicy,
    backoff::{ExponentialBackoffMaker, Jitter, Schedule, Seeds},
    http::Deadline,
    observe::StopReason,
};

use crate::support_http::{Log, Net, OK, UNAVAILABLE, read_request, request, serve_http1};

const SECOND: Duration = Duration::from_secs(1);
const URI: &str = "http://in.memory/";

#[tokio::test(start_paused = true)]
async fn a_timeout_below_the_layer_is_for_one_attempt_and_is_retried() {
    let (net, requests) = silent_for(2);
    let started = Instant::now();
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(every(SECOND).observe(log.clone())))
        .timeout(10 * SECOND)
        .service(net.client());
    let response = client.clone().oneshot(request("GET", URI)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(started.elapsed(), 22 * SECOND);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
    assert_eq!(log.events().ends, [(StopReason::Success, 3, 0)]);

    let (net, requests) = silent_for(2);
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(every(SECOND)))
        .timeout(10 * SECOND)
        .service(net.client());
    let error = client.oneshot(request("POST", URI)).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_above_the_layer_is_for_all_attempts_and_ends_them() {
    let (net, requests) = silent_for(2);
    let started = Instant::now();
    let log = Log::default();
    let client = ServiceBuilder::new()
        .timeout(5 * SECOND)
        .layer(RetryLayer::new(every(SECOND).observe(log.clone())))
        .service(net.client());
    let error = client.oneshot(request("GET", URI)).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(started.elapsed(), 5 * SECOND);
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert_eq!(log.events().ends, [(StopReason::Cancelled, 1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn four_clients_told_the_same_second_wait_for_it_and_do_not_return_together() {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let seen = arrivals.clone();
    let started = Instant::now();
    let net = Net::new(move |stream| {
        let seen = seen.clone();
        serve_http1(stream, move |_| {
            let mut seen = seen.lock().unwrap();
            seen.push(started.elapsed());
            let response = if seen.len() <= 4 {
                let told = Response::builder().status(429).header("retry-after", "1");
                told.body(Full::default()).unwrap()
            } else {
                Response::new(Full::default())
            };
            std::future::ready(Ok(response))
        })
    });
    // The seed makes it one known draw: a timer's resolution is a millisecond, and two of four
    // delays may well share one.
    let short = Duration::from_millis(1);
    let seeds = Seeds::from_seed(1);
    let backoff = ExponentialBackoffMaker::new(short, short, Jitter::Full, seeds).unwrap();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(StandardPolicy::http().backoff(backoff)))
        .service(net.client());
    let calls = (0..4).map(|_| tokio::spawn(client.clone().oneshot(request("GET", URI))));
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    let arrivals = arrivals.lock().unwrap();
    let (first, second) = arrivals.split_at(4);
    assert!(first.iter().all(|at| at.is_zero()));
    assert!(
        second.iter().all(|at| *at > SECOND && *at < 2 * SECOND),
        "{second:?}"
    );
    let mut apart = second.to_vec();
    apart.dedup();
    assert_eq!(apart.len(), 4, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rejected_response_is_gone_before_the_wait() {
    // The body never ends, so the client can free the connection only by closing it.
    const ENDLESS: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1000\r\n\r\nbusy";
    let closed = Arc::new(Mutex::new(None));
    let at = closed.clone();
    let started = Instant::now();
    let net = Net::new(move |mut stream| {
        let at = at.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            if at.lock().unwrap().is_some() {
                stream.write_all(OK.as_bytes()).await.unwrap();
                return;
            }
            stream.write_all(ENDLESS.as_bytes()).await.unwrap();
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
            *at.lock().unwrap() = Some(started.elapsed());
        }
    });
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(every(30 * SECOND)))
        .service(net.client());
    let response = client.oneshot(request("GET", URI)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(started.elapsed(), 30 * SECOND);
    assert_eq!(*closed.lock().unwrap(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline_of_the_request() {
    let net = Net::new(|mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            stream.write_all(UNAVAILABLE.as_bytes()).await.unwrap();
        }
    });
    let started = Instant::now();
    let log = Log::default();
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(
            every(4 * SECOND).max_attempts(9).observe(log.clone()),
        ))
        .service(net.client());
    let mut request = request("GET", URI);
    request
        .extensions_mut()
        .insert(Deadline(started + 10 * SECOND));
    let response = client.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(started.elapsed(), 8 * SECOND);
    assert_eq!(log.events().ends, [(StopReason::DeadlineExceeded, 3, 0)]);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_clients_come_through_an_outage_within_the_budget() {
    const CLIENTS: u64 = 200;
    const REQUESTS: u64 = 50; // one every fifth of a second: ten seconds

    let started = Instant::now();
    let outage = move || (3..8).contains(&started.elapsed().as_secs());
    let served = Arc::new(AtomicUsize::new(0));
    let seen = served.clone();
    let net = Net::new(move |stream| {
        let seen = seen.clone();
        serve_http1(stream, move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            // Kept connections are cut under the request.
            std::future::ready(if outage() {
                Err(io::ErrorKind::ConnectionReset.into())
            } else {
                Ok(Response::new(Full::from("ok")))
            })
        })
    });
    let switch = net.clone();
    tokio::spawn(async move {
        tokio::time::sleep(3 * SECOND).await;
        switch.set_up(false);
        tokio::time::sleep(5 * SECOND).await;
        switch.set_up(true);
    });

    let log = Log::default();
    let policy = StandardPolicy::http().observe(log.clone());
    let client = ServiceBuilder::new()
        .layer(RetryLayer::new(policy))
        .service(net.client());
    let clients = (0..CLIENTS).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut ok = 0;
            // Apart, so that some are out of attempts before the budget is empty.
            tokio::time::sleep(Duration::from_millis(number)).await;
            for _ in 0..REQUESTS {
                tokio::time::sleep(Duration::from_millis(199)).await;
                let method = if number % 4 == 0 { "POST" } else { "GET" };
                if let Ok(response) = client.clone().oneshot(request(method, URI)).await {
                    response.into_body().collect().await.unwrap();
                    ok += 1;
                }
            }
            ok
        })
    });
    let mut ok = 0;
    for client in clients.collect::<Vec<_>>() {
        ok += client.await.unwrap();
    }

    let events = log.events();
    let requests = (CLIENTS * REQUESTS) as usize;
    assert_eq!(events.ends.len(), requests, "every request ends once");
    let ended = |reason| events.ends.iter().filter(|end| end.0 == reason).count();
    assert_eq!(ended(StopReason::Success), ok);
    let failed = [
        ended(StopReason::AttemptsExhausted),
        ended(StopReason::BudgetExhausted),
        ended(StopReason::NotRetryable), // a POST on a connection that was cut under it
    ];
    assert!(failed.iter().all(|count| *count > 0), "{failed:?}");
    assert_eq!(ok + failed.iter().sum::<usize>(), requests);
    // The default budget: a hundred at once, and one for every five successes.
    let sent: u32 = events.ends.iter().map(|end| end.1 + end.2).sum();
    let retries = sent as usize - requests;
    assert!(retries <= 100 + ok / 5, "{retries} {ok}");
    // The healthy half: all but the outage's five seconds of ten.
    assert!(ok >= requests * 4 / 10, "{ok}");
    assert!(served.load(Ordering::SeqCst) >= ok);
}

fn every<M>(delay: Duration) -> StandardPolicy<tower_retry_layer::http::Http<M>, Schedule> {
    StandardPolicy::http().backoff(Schedule::new([delay]).unwrap())
}

/// A server that answers nothing to so many requests, and then each.
fn silent_for(silences: usize) -> (Net, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    let net = Net::new(move |stream| {
        let seen = seen.clone();
        serve_http1(stream, move |_| {
            let silent = seen.fetch_add(1, Ordering::SeqCst) < silences;
            async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                Ok(Response::new(Full::<Bytes>::default()))
            }
        })
    });
    (net, requests)
}
