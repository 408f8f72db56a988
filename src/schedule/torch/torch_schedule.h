// Reads and writes plans as files of PyTorch (torch.distributed.pipelining, `_dump_csv` and `_load_csv`).
//
// A file in PyTorch's format "compute_comms" waits for its sends ("0WAIT_SEND_F1", "1WAIT_SEND_B3") and reductions
// ("0WAIT_REDUCE_GRAD"). Trifold's executor needs no such actions: memory that a message or a reduction reads is not
// reused before it is done, and STEP waits for all reductions of its stage. PyTorch's sends proceed independently until
// their wait; Trifold's proceed one after the other, so an order of messages that runs in PyTorch can deadlock here
// (with `defer_pp_recv`, for example).
#pragma once

#include <string>
#include <string_view>

#include "schedule/action.h"

namespace trifold {

// Parses a plan as parse_plan does (action.h), from a text that may have waits. The result has none and, if the text
// waits for sends, no messages either: add_communication places them. Throws Error(BadInput) that names the row and the
// cell of a wait that follows no send or reduction, or repeats another.
Plan parse_plan_with_waits(std::string_view text);

// The plan in PyTorch's format "compute_only", for `_load_csv(FILE)`: F, I, W, B and OVERLAP_F_B, to which PyTorch
// itself adds messages, reductions and gathers. An F, I, W or B that is split into blocks is written whole at the
// position of its block 0, which is the first block of an F and the last of the others. Throws Error(BadInput) for the
// plan of an asynchronous schedule: one with weight versions, or with updates before its end.
std::string to_torch_csv(const Plan& plan);

// The plan as CSV with every action of PyTorch's runtime, for `_load_csv(FILE, format="compute_comms")`:
// - messages as add_communication places them, regardless of the plan's own, and a wait for each send: for a SEND_F
//   after the backward of its stage and micro-batch, for a SEND_B at the end of the row;
// - REDUCE_GRAD and the wait for it after the last weight gradient of a stage;
// - UNSHARD and RESHARD of whole stages where the plan has them; otherwise UNSHARD of all stages at the beginning of
//   a row and RESHARD after the reduction of each.
// STEP and REDUCE_TIED, which PyTorch does not have, are left out. Throws Error(BadInput) as to_torch_csv
// does, and for an order of computation that cannot run.
std::string to_torch_comms_csv(const Plan& plan);

}  // namespace trifold
