//! The storm lab: what a retry policy does to the other side.
//!
//! ```text
//! cargo run --release --example storm -- gateway     # real clients, a real server, an outage
//! cargo run --release --example storm -- herd        # thousands of callers fail together
//! cargo run --release --example storm -- contention  # the simulation that full jitter comes from
//! cargo run --release --example storm -- amplify     # offered load against sent load
//! cargo run --release --example storm -- fleet       # processes with equal seeds
//! ```
//!
//! It counts on the receiver's side: not whether a call got through, but how many arrived, and how
//! many in the same instant. Each command prints one table; `--svg FILE` draws it, `--csv FILE`
//! keeps it, and all but `gateway` are the same for the same `--seed`. What it took goes to stderr.
//!
//! What is simulated is in [`model`], which the tests run too; how, is said there.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use clap::{Parser, Subcommand};

mod amplify;
mod axis;
mod chart;
mod contention;
mod fleet;
mod gateway;
mod herd;
mod model;
mod output;
mod table;
mod workers;

/// What a retry policy does to the other side.
#[derive(Parser)]
#[command(name = "storm")]
struct Storm {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Real clients and a real server that is down for a while.
    Gateway(gateway::Gateway),
    /// Callers that all fail in the same moment, on a virtual clock.
    Herd(herd::Herd),
    /// Clients that update one row: the simulation that full jitter comes from.
    Contention(contention::Contention),
    /// A stream of requests through an outage: what is offered against what is sent.
    Amplify(amplify::Amplify),
    /// Processes with seeds of their own, and with equal ones by mistake.
    Fleet(fleet::Fleet),
}

type Failed = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let command = Storm::parse().command;
    let begun = Instant::now();
    let done = match command {
        Command::Gateway(command) => command.run(),
        Command::Herd(command) => command.run(),
        Command::Contention(command) => command.run(),
        Command::Amplify(command) => command.run(),
        Command::Fleet(command) => command.run(),
    };
    let shown = done.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?));
    match shown {
        Ok(()) => {
            // Not with the results, which are to be compared.
            eprintln!("{}", output::cost(begun));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::FAILURE
        }
    }
}
