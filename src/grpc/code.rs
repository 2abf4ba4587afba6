//! `Code`: how a call ended, in gRPC's words.

use std::fmt;

use http::StatusCode;

// One row a code: its variant, number, name and meaning.
macro_rules! codes {
    ($($variant:ident = $number:literal $name:literal $doc:literal),+ $(,)?) => {
        /// The status of a call (gRPC's [statuscodes.md]).
        ///
        /// The numbers are those of the wire, and the names of the variants those of tonic, whose own
        /// code becomes one of these by its number: `Code::from(tonic_code as i32)`.
        ///
        /// # Examples
        ///
        /// ```
        /// use tower_retry_layer::grpc::Code;
        ///
        /// assert_eq!(Code::from(14), Code::Unavailable);
        /// assert_eq!(Code::Unavailable.to_string(), "UNAVAILABLE");
        /// assert_eq!(Code::from(99), Code::Unknown);
        /// ```
        ///
        /// [statuscodes.md]: https://grpc.github.io/grpc/core/md_doc_statuscodes.html
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Code {
            $(#[doc = $doc] $variant = $number,)+
        }

        impl Code {
            /// The name in gRPC's documents, such as `UNAVAILABLE`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        /// A number that no code has is `Unknown`.
        impl From<i32> for Code {
            fn from(number: i32) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    _ => Self::Unknown,
                }
            }
        }
    };
}

codes! {
    Ok = 0 "OK" "It succeeded.",
    Cancelled = 1 "CANCELLED" "It was cancelled, most often by the caller.",
    Unknown = 2 "UNKNOWN" "An error of another system, or one that says too little.",
    InvalidArgument = 3 "INVALID_ARGUMENT" "The arguments are wrong whatever the system's state.",
    DeadlineExceeded = 4 "DEADLINE_EXCEEDED" "The deadline was over first; the server may still have acted.",
    NotFound = 5 "NOT_FOUND" "What was asked for is not there.",
    AlreadyExists = 6 "ALREADY_EXISTS" "What was to be created is there already.",
    PermissionDenied = 7 "PERMISSION_DENIED" "The caller may not do this.",
    ResourceExhausted = 8 "RESOURCE_EXHAUSTED" "A quota, or a whole disk, is used up.",
    FailedPrecondition = 9 "FAILED_PRECONDITION" "The system must be put into another state first.",
    Aborted = 10 "ABORTED" "A conflict; the transaction as a whole may be tried again.",
    OutOfRange = 11 "OUT_OF_RANGE" "It went past the end.",
    Unimplemented = 12 "UNIMPLEMENTED" "The server does not know the method.",
    Internal = 13 "INTERNAL" "Something in the server or in the protocol is broken.",
    Unavailable = 14 "UNAVAILABLE" "The service is not there at the moment.",
    DataLoss = 15 "DATA_LOSS" "Data is lost or damaged for good.",
    Unauthenticated = 16 "UNAUTHENTICATED" "The caller did not say who it is.",
}

impl Code {
    /// The code of an answer that comes from something other than a gRPC server: a proxy, a load
    /// balancer (gRPC's [http-grpc-status-mapping.md]). For 200 that is `Unknown`, too.
    ///
    /// [http-grpc-status-mapping.md]: https://grpc.github.io/grpc/core/md_doc_http-grpc-status-mapping.html
    pub(super) fn from_http(status: StatusCode) -> Self {
        match status.as_u16() {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
