//! `Retry-After` and `retry-after-ms`: the published vectors R1 to R16, by their names.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use proptest::prelude::*;
use tower_retry_layer::http::retry_after;

const CAP: Duration = Duration::from_secs(300);
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

// 1994-11-06T08:49:37Z, the moment that RFC 9110 writes in all three forms.
const RFC_EXAMPLE: u64 = 784_111_777;

#[test]
fn r1_a_number_is_seconds() {
    assert_eq!(hint("120"), secs(120));
}

#[test]
fn r2_zero_is_absent() {
    assert_eq!(hint("0"), None);
    assert_eq!(hint("000"), None);
}

#[test]
fn r3_the_cap_cuts() {
    assert_eq!(hint("3600"), Some(CAP));
    assert_eq!(hint("300"), Some(CAP));
    assert_eq!(hint("299"), secs(299));
}

#[test]
fn r4_missing_and_garbage_are_absent() {
    assert_eq!(retry_after(&HeaderMap::new(), at(0), CAP), None);
    assert_eq!(hint("not-a-number"), None);
}

#[test]
fn r5_whitespace_around_the_value_does_not_count() {
    assert_eq!(hint(" 120"), secs(120));
    assert_eq!(hint("120 "), secs(120));
    assert_eq!(hint("\t120 \t"), secs(120));
    assert_eq!(hint("1 20"), None);
}

#[test]
fn r6_a_date_counts_from_now() {
    let now = at(RFC_EXAMPLE - 60);
    assert_eq!(hint_at("Sun, 06 Nov 1994 08:49:37 GMT", now), secs(60));
    let now = at(RFC_EXAMPLE - 600);
    assert_eq!(hint_at("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(CAP));
}

#[test]
fn r7_a_date_in_the_past_is_absent() {
    for now in [RFC_EXAMPLE, RFC_EXAMPLE + 1, RFC_EXAMPLE + 1_000_000_000] {
        assert_eq!(hint_at("Sun, 06 Nov 1994 08:49:37 GMT", at(now)), None);
    }
}

#[test]
fn r8_number_and_date_agree() {
    let now = at(946_684_797); // 1999-12-31T23:59:57Z
    assert_eq!(hint_at("2", now), secs(2));
    assert_eq!(hint_at("Fri, 31 Dec 1999 23:59:59 GMT", now), secs(2));
}

#[test]
fn r9_broken_values_are_absent() {
    let values = ["", "-2", "Fri, 32 Dec 1999 23:59:59 GMT", "badbadbad"];
    for value in values {
        assert_eq!(hint(value), None, "{value:?}");
    }
}

#[test]
fn r10_the_first_of_two_fields_counts() {
    let mut headers = HeaderMap::new();
    headers.append(RETRY_AFTER, HeaderValue::from_static("2"));
    headers.append(RETRY_AFTER, HeaderValue::from_static("9"));
    assert_eq!(retry_after(&headers, at(0), CAP), secs(2));
}

#[test]
fn r11_to_r13_the_three_forms_name_one_moment() {
    let now = at(RFC_EXAMPLE - 7);
    for form in [
        "Sunday, 06-Nov-94 08:49:37 GMT", // R11, RFC 850
        "Sun Nov  6 08:49:37 1994",       // R12, asctime
        "Sun, 06 Nov 1994 08:49:37 GMT",  // R13, IMF-fixdate
    ] {
        assert_eq!(hint_at(form, now), secs(7), "{form}");
    }
}

#[test]
fn r11_a_year_of_two_digits_over_fifty_years_ahead_has_passed() {
    // 2069-11-06 is a Wednesday.
    let form = "Wednesday, 06-Nov-69 08:49:37 GMT";
    let fifty_nine_years_before = at(1_288_000_000); // 2010
    assert_eq!(hint_at(form, fifty_nine_years_before), None);
    let forty_three_years_before = at(1_793_000_000); // 2026
    assert_eq!(hint_at(form, forty_three_years_before), Some(CAP));
    // A year of four digits is what it says.
    let full = "Wed, 06 Nov 2069 08:49:37 GMT";
    assert_eq!(hint_at(full, fifty_nine_years_before), Some(CAP));
}

#[test]
fn r14_a_leap_second_is_the_second_after_59() {
    let now = at(1_483_228_799); // 2016-12-31T23:59:59Z
    assert_eq!(hint_at("Sat, 31 Dec 2016 23:59:60 GMT", now), secs(1));
    assert_eq!(hint_at("Sat Dec 31 23:59:60 2016", now), secs(1));
    assert_eq!(hint_at("Saturday, 31-Dec-16 23:59:60 GMT", now), secs(1));
    for broken in [
        "Sat, 31 Dec 2016 23:60:30 GMT",
        "Sat, 31 Dec 2016 23:60:60 GMT",
        "Sat, 31 Dec 2016 23:59:61 GMT",
        ":60",
        ":60 ",
    ] {
        assert_eq!(hint_at(broken, now), None, "{broken}");
    }
    // A minute of 60 is none, not even where what it might be taken for is still to come.
    let a_minute_before = at(1_483_228_740); // 2016-12-31T23:59:00Z
    for form in ["Sat, 31 Dec 2016 23:59:60 GMT", "Sat Dec 31 23:59:60 2016"] {
        assert_eq!(hint_at(form, a_minute_before), secs(60), "{form}");
    }
    for broken in [
        "Sat, 31 Dec 2016 23:60:30 GMT",
        "Sat Dec 31 23:60:30 2016",
        "Saturday, 31-Dec-16 23:60:30 GMT",
        "Sat, 31 Dec 2016 23:60:60 GMT",
    ] {
        assert_eq!(hint_at(broken, a_minute_before), None, "{broken}");
    }
}

#[test]
fn r15_signs_fractions_units_and_hex_are_absent() {
    for value in ["-3", "+3", "1.5", "3s", "0x10", "1e3", "٣"] {
        assert_eq!(hint(value), None, "{value}");
    }
}

#[test]
fn r16_huge_numbers_are_the_cap() {
    let nines = "9".repeat(4000);
    for value in [
        "9223372037",
        "18446744073709551615",
        "18446744073709551616",
        &nines,
    ] {
        assert_eq!(hint(value), Some(CAP), "{value}");
        let uncapped = retry_after(&fields(RETRY_AFTER, value), at(0), Duration::MAX);
        assert!(uncapped.is_some_and(|delay| delay > CAP), "{value}");
    }
    let last = "Fri, 31 Dec 9999 23:59:59 GMT";
    assert_eq!(hint(last), Some(CAP));
}

#[test]
fn e11_what_is_missing_or_a_fraction_is_absent() {
    assert_eq!(retry_after(&HeaderMap::new(), at(1_000_000_000), CAP), None);
    assert_eq!(hint_at("2.5", at(1_000_000_000)), None);
}

#[test]
fn e12_the_name_counts_in_any_case() {
    for name in ["retry-after", "Retry-After", "RETRY-AFTER"] {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(retry_after(&fields(name, "5"), at(0), CAP), secs(5));
    }
}

#[test]
fn e13_a_timestamp_with_a_fraction_is_absent() {
    assert_eq!(hint_at("1595320702.1234", at(1_000_000_000)), None);
}

#[test]
fn milliseconds_come_first() {
    let mut headers = fields(RETRY_AFTER, "9");
    headers.insert(RETRY_AFTER_MS, HeaderValue::from_static("1500"));
    let delay = retry_after(&headers, at(0), CAP);
    assert_eq!(delay, Some(Duration::from_millis(1500)));
}

#[test]
fn milliseconds_that_say_nothing_leave_it_to_seconds() {
    for value in ["0", "-5", "", "soon", "1.5"] {
        let mut headers = fields(RETRY_AFTER, "9");
        headers.insert(RETRY_AFTER_MS, HeaderValue::from_static(value));
        assert_eq!(retry_after(&headers, at(0), CAP), secs(9), "{value:?}");
        headers.remove(RETRY_AFTER);
        assert_eq!(retry_after(&headers, at(0), CAP), None, "{value:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_absent() {
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, HeaderValue::from_bytes(b"12\xff").unwrap());
    assert_eq!(retry_after(&headers, at(0), CAP), None);
}

#[test]
fn a_cap_of_zero_leaves_no_hint() {
    let headers = fields(RETRY_AFTER, "5");
    assert_eq!(retry_after(&headers, at(0), Duration::ZERO), None);
}

proptest! {
    #[test]
    fn every_value_gives_a_delay_within_the_cap_or_none(
        value in "[ -~]{0,40}",
        now in 0_u64..4_000_000_000,
    ) {
        if let Some(delay) = hint_at(&value, at(now)) {
            prop_assert!(!delay.is_zero() && delay <= CAP);
        }
    }

    #[test]
    fn every_date_in_the_future_is_its_distance(
        now in 0_u64..4_000_000_000,
        ahead in 1_u64..300,
    ) {
        let date = httpdate::fmt_http_date(at(now + ahead));
        prop_assert_eq!(hint_at(&date, at(now)), secs(ahead));
    }
}

fn hint(value: &str) -> Option<Duration> {
    hint_at(value, at(1_000_000_000))
}

fn hint_at(value: &str, now: SystemTime) -> Option<Duration> {
    retry_after(&fields(RETRY_AFTER, value), now, CAP)
}

fn fields(name: HeaderName, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
    headers
}

fn at(unix: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(unix)
}

fn secs(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}
