//! tonic's client with retries against an HTTP/2 server made for the odd cases.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use h2::Reason;
use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use tokio::time::Instant;
use tonic::{Code, codec::CompressionEncoding, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::ServiceBuilder;
use tower_retry_layer::{
    RetryLayer, StandardPolicy, Verdict,
    backoff::Schedule,
    grpc::{self, Grpc},
    http::Boxed,
    observe::{RetrySummary, StopReason},
    replay::ReplayLayer,
};

use crate::{
    support::{Event, Events, ms},
    support_grpc::{
        Answer, End, Headers, INTERNAL, OK, Reply, SERVING, Server, Stack, UNAVAILABLE, channel,
        head, map, peeking, policy, settle, stack, streaming,
    },
    support_http::Net,
};

const SECOND: Duration = Duration::from_secs(1);
const TRAILERS: Headers = &[("grpc-status", "14")];

/// What came of one unary call.
struct Came {
    code: Code,
    requests: usize,
    /// Why the session ended, its attempts, and its retries that were not counted.
    end: (StopReason, u32, u32),
    elapsed: Duration,
    server: Server,
}

#[tokio::test(start_paused = true)]
async fn a_unary_call_that_ends_in_every_way() {
    // (what the server does first, what the caller sees, how the session ended)
    let twice = (Code::Ok, (StopReason::Success, 2, 0));
    let at_once = (Code::Ok, (StopReason::Success, 1, 1));
    let stop = |code| (code, (StopReason::NotRetryable, 1, 0));
    let committed = |code| (code, (StopReason::Success, 1, 0));
    for (answer, (code, end)) in [
        // Trailers-Only
        (UNAVAILABLE, twice),
        (INTERNAL, stop(Code::Internal)),
        // HEADERS, TRAILERS: nobody looks at them here
        (
            Answer::Body(0, End::Trailers(TRAILERS)),
            committed(Code::Unavailable),
        ),
        // HEADERS, DATA, TRAILERS
        (OK, committed(Code::Ok)),
        (
            Answer::Body(1, End::Trailers(TRAILERS)),
            committed(Code::Unavailable),
        ),
        // No gRPC server
        (Answer::Head(503, &[]), twice),
        (Answer::Head(502, &[("content-type", "text/html")]), twice),
        (Answer::Head(429, &[]), twice),
        (Answer::Head(404, &[]), stop(Code::Unimplemented)),
        (Answer::Head(500, &[]), stop(Code::Unknown)),
        // RST_STREAM
        (Answer::Reset(Reason::REFUSED_STREAM), at_once),
        (Answer::Reset(Reason::INTERNAL_ERROR), stop(Code::Internal)),
        (Answer::Reset(Reason::NO_ERROR), stop(Code::Internal)),
        (Answer::Reset(Reason::CANCEL), stop(Code::Cancelled)),
        (
            Answer::Reset(Reason::ENHANCE_YOUR_CALM),
            stop(Code::ResourceExhausted),
        ),
        // and after the head
        (
            Answer::Body(0, End::Reset(Reason::REFUSED_STREAM)),
            committed(Code::Unavailable),
        ),
        (
            Answer::Body(0, End::Reset(Reason::INTERNAL_ERROR)),
            committed(Code::Internal),
        ),
        // GOAWAY
        (Answer::GoAway(Reason::NO_ERROR, 0), at_once),
        (Answer::GoAway(Reason::ENHANCE_YOUR_CALM, 0), at_once),
        (Answer::GoAway(Reason::NO_ERROR, 1), twice),
        (Answer::Cut, twice),
    ] {
        let came = call([answer, OK]).await;
        assert_eq!((came.code, came.end), (code, end), "{answer:?}");
        let sent = came.end.1 + came.end.2;
        assert_eq!(came.requests, sent as usize, "{answer:?}");
        let waited = SECOND * (came.end.1 - 1);
        // A stream is reset a moment after its head.
        assert!(
            came.elapsed - waited <= ms(1),
            "{answer:?} {:?}",
            came.elapsed
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_reason_of_a_reset_stands_for_a_code() {
    use grpc::Code;

    for (reason, code) in [
        (Reason::NO_ERROR, Code::Internal),
        (Reason::PROTOCOL_ERROR, Code::Internal),
        (Reason::INTERNAL_ERROR, Code::Internal),
        (Reason::FLOW_CONTROL_ERROR, Code::Internal),
        (Reason::SETTINGS_TIMEOUT, Code::Internal),
        (Reason::STREAM_CLOSED, Code::Unknown),
        (Reason::FRAME_SIZE_ERROR, Code::Internal),
        (Reason::REFUSED_STREAM, Code::Unavailable),
        (Reason::CANCEL, Code::Cancelled),
        (Reason::COMPRESSION_ERROR, Code::Internal),
        (Reason::CONNECT_ERROR, Code::Internal),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted),
        (Reason::INADEQUATE_SECURITY, Code::PermissionDenied),
        (Reason::HTTP_1_1_REQUIRED, Code::Unknown),
        (Reason::from(99), Code::Unknown),
    ] {
        let (tell, told) = std::sync::mpsc::channel();
        let rules = Grpc::new().classify_with(move |call, _| {
            let _ = tell.send(call.code());
            Verdict::Stop
        });
        let server = Server::new([Answer::Reset(reason)]);
        let mut client = HealthClient::new(stack(&server.net, StandardPolicy::new(rules)));
        client
            .check(HealthCheckRequest::default())
            .await
            .unwrap_err();
        assert_eq!(told.try_recv(), Ok(Some(code)), "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_in_place_of_a_message_are_seen_where_someone_looks() {
    let late = Answer::Body(0, End::Trailers(TRAILERS));
    let twice = (Code::Ok, (StopReason::Success, 2, 0));
    for (answer, wait, (code, end)) in [
        (late, Duration::ZERO, twice),
        (late, SECOND, twice),
        (
            Answer::Body(0, End::Trailers(&[("grpc-status", "13")])),
            SECOND,
            (Code::Internal, (StopReason::NotRetryable, 1, 0)),
        ),
        (
            Answer::Body(
                0,
                End::Trailers(&[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")]),
            ),
            SECOND,
            (Code::Unavailable, (StopReason::ServerRefused, 1, 0)),
        ),
        // A message first: committed.
        (
            Answer::Body(1, End::Trailers(TRAILERS)),
            SECOND,
            (Code::Unavailable, (StopReason::Success, 1, 0)),
        ),
        (OK, SECOND, (Code::Ok, (StopReason::Success, 1, 0))),
        // No trailers at all, and a reset after the head: no success, and final.
        (
            Answer::Head(200, &[]),
            SECOND,
            (Code::Internal, (StopReason::NotRetryable, 1, 0)),
        ),
        // which hyper takes for an end
        (
            Answer::Body(0, End::Reset(Reason::NO_ERROR)),
            SECOND,
            (Code::Internal, (StopReason::NotRetryable, 1, 0)),
        ),
        (
            Answer::Body(0, End::Reset(Reason::INTERNAL_ERROR)),
            SECOND,
            (Code::Internal, (StopReason::NotRetryable, 1, 0)),
        ),
    ] {
        let came = run([answer, OK], |net, policy| peeking(net, policy, wait)).await;
        assert_eq!((came.code, came.end), (code, end), "{answer:?} {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_sees_the_attempts_counted_and_the_timeout_fall() {
    // G13: exceeds four attempts.
    let server = Server::new([UNAVAILABLE]);
    let mut client = HealthClient::new(stack(&server.net, policy().max_attempts(4)));
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.set_timeout(10 * SECOND);
    let metadata = request.metadata_mut();
    metadata.insert("grpc-previous-rpc-attempts", "7".parse().unwrap());
    metadata.insert("mine", "kept".parse().unwrap());
    let status = client.check(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);

    let previous = server.headers("grpc-previous-rpc-attempts");
    assert_eq!(
        previous,
        [None, Some("1".into()), Some("2".into()), Some("3".into())]
    );
    assert_eq!(server.headers("mine"), vec![Some("kept".to_owned()); 4]);
    let timeouts = server.headers("grpc-timeout");
    let micros = |text: &Option<String>| -> u64 {
        let text = text.as_ref().unwrap();
        text.strip_suffix('u')
            .expect("below 100 s")
            .parse()
            .unwrap()
    };
    let timeouts: Vec<_> = timeouts.iter().map(micros).collect();
    assert!(
        timeouts.is_sorted_by(|one, next| one > next),
        "{timeouts:?}"
    );
    assert_eq!(timeouts, [10_000_000, 9_000_000, 8_000_000, 7_000_000]);
    assert_eq!(server.waits(), [SECOND; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_not_counted_has_no_number_and_no_more_time() {
    let refused = Answer::Reset(Reason::REFUSED_STREAM);
    let server = Server::new([refused, UNAVAILABLE, OK]);
    let mut client = HealthClient::new(stack(&server.net, policy()));
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.set_timeout(Duration::from_secs(1_000));
    client.check(request).await.unwrap();
    let previous = server.headers("grpc-previous-rpc-attempts");
    assert_eq!(previous, [None, None, Some("1".into())]);
    let timeouts = server.headers("grpc-timeout");
    // In milliseconds above 100 s. The clock stood still but for the wait.
    let millis = |text: &str| Some(text.to_owned());
    assert_eq!(
        timeouts,
        [millis("1000000m"), millis("1000000m"), millis("999000m")]
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_the_session_and_the_call() {
    // Waits of 1 s fit three times into 3.5 s; then the call is answered and not sent again.
    let server = Server::new([UNAVAILABLE]);
    let events = Events::default();
    let policy = || policy().max_attempts(9);
    let mut client = HealthClient::new(stack(&server.net, policy().observe(events.clone())));
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.set_timeout(ms(3_500));
    let started = Instant::now();
    let status = client.check(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!((server.requests(), started.elapsed()), (4, 3 * SECOND));
    assert_eq!(events.reasons(), [StopReason::DeadlineExceeded]);

    // A server that says nothing: the timer of tonic's channel reads what is left, not the whole.
    let server = Server::new([UNAVAILABLE, UNAVAILABLE, Answer::Silence]);
    let mut client = HealthClient::new(stack(&server.net, policy()));
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.set_timeout(ms(3_500));
    let started = Instant::now();
    let status = client.check(request).await.unwrap_err();
    assert_eq!(
        status.code(),
        Code::Cancelled,
        "what tonic makes of its own timeout"
    );
    assert_eq!((server.requests(), started.elapsed()), (3, ms(3_500)));

    // The policy's own timeout is told to the server likewise.
    let server = Server::new([Answer::Silence]);
    let policy = policy().total_timeout(2 * SECOND);
    let mut client = HealthClient::new(stack(&server.net, policy));
    let started = Instant::now();
    client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!((server.requests(), started.elapsed()), (1, 2 * SECOND));
    assert_eq!(
        server.headers("grpc-timeout"),
        [Some("2000000u".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_the_layer_is_for_one_attempt() {
    let server = Server::new([Answer::Silence, OK]);
    let rules = Grpc::<Boxed>::new().retry_code(grpc::Code::DeadlineExceeded);
    let policy = StandardPolicy::new(rules).backoff(Schedule::new([SECOND]).unwrap());
    let stack = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy))
        .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
        .timeout(5 * SECOND)
        .service(channel(&server.net));
    let started = Instant::now();
    let mut client = HealthClient::new(stack);
    client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!((server.requests(), started.elapsed()), (2, 6 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_pushback_is_waited_for_exactly_and_cut_to_the_cap() {
    // 5.4: {0, 250, -1, "x", huge}, over the wire.
    for (value, wait) in [
        ("0", Some(Duration::ZERO)),
        ("250", Some(ms(250))),
        ("-1", None),
        ("x", None),
        ("2147483647", Some(60 * SECOND)),
        ("99999999999", None),
    ] {
        let headers: Headers = Vec::leak(vec![
            ("grpc-status", "14"),
            ("grpc-retry-pushback-ms", value),
        ]);
        let came = call([Answer::Head(200, headers), OK]).await;
        assert_eq!(came.server.waits(), Vec::from_iter(wait), "{value}");
        let end = match wait {
            Some(_) => (StopReason::Success, 2, 0),
            None => (StopReason::ServerRefused, 1, 0),
        };
        assert_eq!(came.end, end, "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_streams_are_sent_again_once_at_once_and_then_by_the_policy() {
    let refused = Answer::Reset(Reason::REFUSED_STREAM);
    let pushed = Answer::Head(
        200,
        &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "10")],
    );
    // G18
    let came = call([refused, pushed, OK]).await;
    assert_eq!(came.server.waits(), [Duration::ZERO, ms(10)]);
    assert_eq!(came.end, (StopReason::Success, 2, 1));
    // G19
    let came = call([refused, refused, OK]).await;
    assert_eq!(came.server.waits(), [Duration::ZERO, SECOND]);
    assert_eq!(came.end, (StopReason::Success, 2, 1));
    // G20
    let came = call([UNAVAILABLE, refused, OK]).await;
    assert_eq!(came.server.waits(), [SECOND, SECOND]);
    assert_eq!(came.end, (StopReason::Success, 3, 0));
    // Bounded, whatever the server does.
    let came = call([refused]).await;
    assert_eq!(came.code, Code::Unavailable);
    assert_eq!(
        (came.requests, came.end),
        (4, (StopReason::AttemptsExhausted, 3, 1))
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_asked_again_once_at_once_and_then_by_the_policy() {
    let server = Server::new([OK]);
    server.net.set_up(false);
    let events = Events::default();
    let mut client = HealthClient::new(stack(&server.net, policy().observe(events.clone())));
    let call = tokio::spawn(async move { client.check(HealthCheckRequest::default()).await });
    tokio::time::sleep(ms(1_500)).await;
    server.net.set_up(true);
    call.await.unwrap().unwrap();
    assert_eq!(server.requests(), 1);
    let delays = events.take().into_iter().filter_map(|event| match event {
        Event::Retrying { delay, .. } => Some(delay),
        Event::Finished { .. } => None,
    });
    assert_eq!(delays.collect::<Vec<_>>(), [Duration::ZERO, SECOND, SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_resolve_at_the_moment_is_one_that_was_not_reached() {
    let resolver = tower::service_fn(async |_: Name| {
        // As the standard library's, it has a kind that says nothing of connections.
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err::<std::vec::IntoIter<std::net::SocketAddr>, _>(error)
    });
    let connector = HttpConnector::new_with_resolver(resolver);
    let channel = Endpoint::from_static("http://in.memory").connect_with_connector_lazy(connector);
    let events = Events::default();
    let stack = ServiceBuilder::new()
        .layer(ReplayLayer::default())
        .layer(RetryLayer::new(policy().observe(events.clone())))
        .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
        .service(channel);
    let mut client = HealthClient::new(stack);
    let status = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(events.reasons(), [StopReason::AttemptsExhausted]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_once_a_response_has_begun() {
    // G14: after the headers, and after a message.
    for (messages, wait) in [(0, None), (1, None), (1, Some(SECOND)), (3, Some(SECOND))] {
        let failing = Answer::Body(messages, End::Trailers(TRAILERS));
        let server = Server::new([failing, OK]);
        let stack = match wait {
            None => stack(&server.net, policy()),
            Some(wait) => peeking(&server.net, policy(), wait),
        };
        let mut client = HealthClient::new(stack);
        let response = client.watch(HealthCheckRequest::default()).await.unwrap();
        let mut messages_in = response.into_inner();
        for _ in 0..messages {
            messages_in.message().await.unwrap().unwrap();
        }
        let status = messages_in.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(server.requests(), 1, "{messages} {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_stream_that_fails_before_its_first_message_is_sent_again_where_someone_looks() {
    let server = Server::new([Answer::Body(0, End::Trailers(TRAILERS)), OK]);
    let mut client = HealthClient::new(peeking(&server.net, policy(), Duration::ZERO));
    let response = client.watch(HealthCheckRequest::default()).await.unwrap();
    let summary = *response.extensions().get::<RetrySummary>().unwrap();
    assert_eq!((summary.attempts, summary.reason), (2, StopReason::Success));
    let mut messages = response.into_inner();
    assert_eq!(messages.message().await.unwrap().unwrap().status, 1);
    assert!(messages.message().await.unwrap().is_none());
    assert_eq!(server.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_limit_is_sent_once() {
    // G17.
    for (limit, size, requests) in [(400, 200, 2), (400, 500, 1)] {
        let server = Server::new([UNAVAILABLE, OK]);
        let events = Events::default();
        let stack = ServiceBuilder::new()
            .layer(ReplayLayer::new(limit))
            .layer(RetryLayer::new(policy().observe(events.clone())))
            .map_request(|request: http::Request<_>| request.map(tonic::body::Body::new))
            .service(channel(&server.net));
        let service = "s".repeat(size);
        let result = HealthClient::new(stack)
            .check(HealthCheckRequest { service })
            .await;
        assert_eq!(result.is_ok(), requests == 2, "{size}");
        assert_eq!(server.requests(), requests, "{size}");
        let reason = match requests {
            2 => StopReason::Success,
            _ => StopReason::NotReplayable,
        };
        assert_eq!(events.reasons(), [reason]);
        // The live request went on beyond the limit.
        assert!(server.seen().iter().all(|seen| seen.body.len() > size));
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_request_is_sent_again_as_it_was() {
    let server = Server::new([UNAVAILABLE, UNAVAILABLE, OK]);
    let mut client =
        HealthClient::new(stack(&server.net, policy())).send_compressed(CompressionEncoding::Gzip);
    let service = "again and ".repeat(500);
    client.check(HealthCheckRequest { service }).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        server.headers("grpc-encoding"),
        vec![Some("gzip".to_owned()); 3]
    );
    assert!(seen[0].body.len() < 500, "compressed");
    assert_eq!(seen[0].body[0], 1, "and marked as such");
    assert!(seen.iter().all(|it| it.body == seen[0].body));
}

#[tokio::test(start_paused = true)]
async fn a_client_stream_that_fails_on_its_way_is_sent_again_from_its_start() {
    // The server answers after the first message while the client is still sending.
    let server = Server::new([UNAVAILABLE.after(1), UNAVAILABLE.after(12), OK.into()]);
    let texts = ["one", "two", "three", "four"];
    let messages = stream::iter(texts).then(|text| async move {
        tokio::time::sleep(ms(400)).await;
        Bytes::from_static(text.as_bytes())
    });
    let response = streaming(stack(&server.net, policy()), messages)
        .await
        .unwrap();
    assert_eq!(
        response.into_inner().message().await.unwrap().unwrap(),
        SERVING[5..]
    );
    let all: Vec<u8> = texts.iter().flat_map(|text| framed(text)).collect();
    let seen = server.seen();
    assert_eq!(seen.len(), 3);
    assert!(all.starts_with(&seen[0].body) && seen[0].body.len() < all.len());
    assert!(all.starts_with(&seen[1].body));
    assert_eq!(seen[2].body, all);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_both_directions_is_not_delayed() {
    for wait in [None, Some(Duration::ZERO)] {
        // The head comes at once, the messages only in answer to the client's.
        let net = Net::new(|stream| async {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                tokio::spawn(async move {
                    let mut answers = respond.send_response(head(), false).unwrap();
                    let mut messages = request.into_body();
                    while let Some(Ok(data)) = messages.data().await {
                        messages
                            .flow_control()
                            .release_capacity(data.len())
                            .unwrap();
                        answers.send_data(data, false).unwrap();
                    }
                    answers.send_trailers(map(&[("grpc-status", "0")])).unwrap();
                });
            }
        });
        let stack = match wait {
            None => stack(&net, policy()),
            Some(wait) => peeking(&net, policy(), wait),
        };
        let (send, messages) = tokio::sync::mpsc::unbounded_channel();
        let messages = stream::unfold(messages, |mut messages| async {
            Some((messages.recv().await?, messages))
        });
        let started = Instant::now();
        // Were the head held back for a first message, this would never be ready.
        let mut answers = streaming(stack, messages).await.unwrap().into_inner();
        for text in ["ping", "pong"] {
            send.send(Bytes::from(text)).unwrap();
            assert_eq!(answers.message().await.unwrap().unwrap(), text);
        }
        drop(send);
        assert!(answers.message().await.unwrap().is_none());
        assert_eq!(started.elapsed(), Duration::ZERO, "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_is_held_back_no_longer_than_it_may_be() {
    for (wait, late) in [(SECOND, SECOND), (5 * SECOND, 3 * SECOND)] {
        // The first message is three seconds late.
        let net = Net::new(|stream| async {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                tokio::spawn(async move {
                    let mut answers = respond.send_response(head(), false).unwrap();
                    for _ in 0..2 {
                        tokio::time::sleep(3 * SECOND).await;
                        answers
                            .send_data(Bytes::from_static(SERVING), false)
                            .unwrap();
                    }
                    answers.send_trailers(map(&[("grpc-status", "0")])).unwrap();
                });
            }
        });
        let started = Instant::now();
        let mut client = HealthClient::new(peeking(&net, policy(), wait));
        let response = client.watch(HealthCheckRequest::default()).await.unwrap();
        assert_eq!(started.elapsed(), late);
        let mut messages = response.into_inner();
        for number in 1..=2 {
            assert!(messages.message().await.unwrap().is_some());
            assert_eq!(started.elapsed(), 3 * SECOND * number);
        }
        assert!(messages.message().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn clones_and_a_shared_client_retry_at_the_same_time() {
    const CALLS: usize = 40;

    // Twice each, in whatever order they come.
    let server = Server::new([UNAVAILABLE; CALLS].into_iter().chain([OK]));
    let client = HealthClient::new(stack(&server.net, policy()));
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let service = number.to_string();
                client.check(HealthCheckRequest { service }).await
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(server.requests(), 2 * CALLS);
    let mut bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.body).collect();
    bodies.sort();
    assert!(
        bodies.chunks(2).all(|two| two[0] == two[1]),
        "each was sent twice"
    );
    bodies.dedup();
    assert_eq!(bodies.len(), CALLS);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_ends_it() {
    let server = Server::new([UNAVAILABLE]);
    let events = Events::default();
    let mut client = HealthClient::new(stack(&server.net, policy().observe(events.clone())));
    let call = tokio::spawn(async move { client.check(HealthCheckRequest::default()).await });
    tokio::time::sleep(ms(1)).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    tokio::time::sleep(10 * SECOND).await;
    settle().await;
    assert_eq!(server.requests(), 1);
    assert_eq!(events.reasons(), [StopReason::Cancelled]);
}

async fn call(replies: impl IntoIterator<Item = impl Into<Reply>>) -> Came {
    run(replies, stack).await
}

async fn run(
    replies: impl IntoIterator<Item = impl Into<Reply>>,
    stack: impl FnOnce(&Net, StandardPolicy<Grpc, Schedule>) -> Stack,
) -> Came {
    let server = Server::new(replies);
    let events = Events::default();
    let stack = stack(&server.net, policy().observe(events.clone()));
    let started = Instant::now();
    let result = HealthClient::new(stack)
        .check(HealthCheckRequest::default())
        .await;
    let elapsed = started.elapsed();
    let mut ends = events.take().into_iter().filter_map(|event| match event {
        Event::Finished {
            reason,
            attempts,
            transparent,
            ..
        } => Some((reason, attempts, transparent)),
        Event::Retrying { .. } => None,
    });
    let end = ends.next().expect("the session ended");
    assert!(ends.next().is_none(), "once");
    Came {
        code: result.err().map_or(Code::Ok, |status| status.code()),
        requests: server.requests(),
        end,
        elapsed,
        server,
    }
}

fn framed(text: &str) -> Vec<u8> {
    let mut message = vec![0, 0, 0, 0, u8::try_from(text.len()).unwrap()];
    message.extend(text.bytes());
    message
}
