//! A TCP client that finds its server again: a backoff as a counter, without any service.
//!
//! ```text
//! cargo run --example reconnect
//! ```
//!
//! The server refuses for half a second, then hangs up without a word, then serves in two parts.
//! The waits grow until a line has come and only then start over: a server that accepts and hangs
//! up is not well yet. It ends by itself, with an error if twenty tries in a row were in vain.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpSocket, TcpStream},
    time::sleep,
};
use tower::BoxError;
use tower_retry_layer::backoff::{
    Backoff, ExponentialBackoff, ExponentialBackoffMaker, Jitter, MakeBackoff, Seeds,
};

/// What the server says before it hangs up, connection by connection.
const SAYS: [&str; 4] = ["", "one\ntwo\n", "", "three\nend\n"];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Bound, so that the port is ours; it refuses until somebody listens.
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = socket.local_addr()?;
    let server = tokio::spawn(serve(socket));

    let (min, max) = (Duration::from_millis(50), Duration::from_millis(500));
    let maker = ExponentialBackoffMaker::new(min, max, Jitter::Equal, Seeds::random())?;
    let mut backoff = maker.make_backoff();
    while let Err(trouble) = listen(address, &mut backoff).await {
        if backoff.attempt() == 20 {
            return Err(trouble.into());
        }
        let delay = backoff.next_delay();
        println!(
            "try {:>2} in {:>3} ms: {trouble}",
            backoff.attempt(),
            delay.as_millis()
        );
        sleep(delay).await;
    }
    server.await??;
    Ok(())
}

/// Connects and prints what the server says. Fails unless it says `end`.
async fn listen(address: SocketAddr, backoff: &mut ExponentialBackoff) -> io::Result<()> {
    let mut lines = BufReader::new(TcpStream::connect(address).await?).lines();
    while let Some(line) = lines.next_line().await? {
        println!("heard {line:?}");
        backoff.reset();
        if line == "end" {
            return Ok(());
        }
    }
    Err(io::Error::other("the server hung up"))
}

async fn serve(socket: TcpSocket) -> io::Result<()> {
    sleep(Duration::from_millis(500)).await;
    let listener = socket.listen(8)?;
    for says in SAYS {
        let (mut stream, _) = listener.accept().await?;
        stream.write_all(says.as_bytes()).await?;
    }
    Ok(())
}
