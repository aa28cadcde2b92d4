//! Terminals and plans.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::MOST;
use super::quantity::{Rate, Size, Time, Whole};
use crate::model::OnHandover;

/// A group of terminals of a gateway that names it in `terminals`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// Number of terminals. Host `i` of a group of hosts behind them is behind terminal `i mod count`.
    #[serde(default = "Whole::<1, MOST>::just::<1>")]
    pub count: Whole<1, MOST>,
    /// Plan of each terminal. Default: weight 1, without committed and peak rate.
    pub plan: Option<String>,
    /// Pool of the carrier that the terminals are in. Default: none, they share the carrier directly.
    pub pool: Option<String>,
    /// Handover of all terminals of the group to another gateway. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<GatewayHandover>,
}

/// Handover of terminals to another gateway.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayHandover {
    /// Group of terminals that stands for them at the other gateway: as many terminals, with links to the same hosts. It carries
    /// no traffic before.
    pub to: String,
    /// Time of the handover since the start of the run.
    pub at: Time,
    /// Connections (TCP, SCTP, QUIC) at the handover: "break" ends them, and sources open new ones; "survive" moves them with
    /// the state of the PEP and of the spacelink.
    #[serde(default)]
    pub connections: OnHandover,
}

/// A part of a gateway's carrier that several terminals or pools share, such as that of a service provider.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Pool that it is in. Default: none, it shares the carrier directly.
    pub parent: Option<String>,
    /// Share of all that is in it in the carrier to the terminals, or in its parent.
    #[serde(default)]
    pub down: Share,
    /// Share of all that is in it in the return carrier, or in its parent there. Default: none, the pools of a gateway divide its
    /// return carrier if any of them has a share; the others then have weight 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<ReturnShare>,
}

/// Plan of a terminal, or of a subscriber behind it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Share of a terminal in the carrier to the terminals, or in its pool; that of a subscriber in its terminal.
    #[serde(default)]
    pub down: Share,
    /// Share of a terminal in the return carrier. Default: weight 1, without constant, committed and peak rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<ReturnShare>,
}

/// Share of a terminal in a return carrier, which is assigned on demand.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReturnShare {
    /// Constant rate, assigned without requests (CRA); what the terminal does not use of it is lost. Not for pools. Default: none.
    pub cra: Option<Rate>,
    /// Committed information rate (CIR): granted to those who request it before any terminal gets more. Default: none.
    pub cir: Option<Rate>,
    /// Peak information rate (PIR) of all grants. Default: the carrier's rate.
    pub pir: Option<Rate>,
    /// Weight by which terminals share the carrier's time that the other rates leave.
    pub weight: Whole<1, 10_000>,
}

impl Default for ReturnShare {
    fn default() -> Self {
        Self { cra: None, cir: None, pir: None, weight: Whole(1) }
    }
}

/// Share of a terminal, a pool or a subscriber in what is above it: the carrier, a pool or a terminal.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Share {
    /// Committed information rate (CIR): served before any other gets more than its own. Default: none.
    pub cir: Option<Rate>,
    /// Peak information rate (PIR), never exceeded but for `burst`. Default: the carrier's rate.
    pub pir: Option<Rate>,
    /// Weight by which they share the carrier's time that the committed rates leave.
    pub weight: Whole<1, 10_000>,
    /// Bytes that may exceed the peak rate at once.
    pub burst: Size,
}

impl Default for Share {
    fn default() -> Self {
        Self { cir: None, pir: None, weight: Whole(1), burst: Size::of(15_000) }
    }
}
