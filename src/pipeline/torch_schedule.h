// Plans as files of PyTorch (torch.distributed.pipelining, `_dump_csv` and `_load_csv`): what these have and
// Trifold's plans have not, and the other way round.
//
// A file in PyTorch's format "compute_comms" waits for its sends ("0WAIT_SEND_F1", "1WAIT_SEND_B3") and
// reductions ("0WAIT_REDUCE_GRAD"). Trifold's executor needs no such action: memory that a message or a
// reduction reads is not used again before it is done, and STEP waits for all reductions of its stage.
// PyTorch's sends each go on by themselves until their wait, Trifold's go one after the other: an order of
// messages that runs there can deadlock here (with `defer_pp_recv`, for example).
#pragma once

#include <string>
#include <string_view>

#include "pipeline/action.h"

namespace trifold {

// As parse_plan (action.h), of a text that may have waits. The plan has none, and if the text waits for sends
// no messages either: add_communication places them. Throws Error(BadInput) that names the row and the cell
// of a wait that no send or reduction comes before, or that repeats another.
Plan parse_plan_with_waits(std::string_view text);

// The plan as a file that PyTorch reads with `_load_csv(FILE)`, that is in its format "compute_only": F, I,
// W, B and OVERLAP_F_B, to which PyTorch adds messages, reductions and gathers itself. An I, W or B that is
// taken apart into blocks is written whole, where its last block stands. Throws Error(BadInput) for a plan
// with weight versions, which PyTorch does not have.
std::string to_torch_csv(const Plan& plan);

}  // namespace trifold
