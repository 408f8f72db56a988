// Action and Plan: a training step as data. A plan is made once, before anything is allocated. It can be printed,
// checked and simulated; one interpreter executes it (pipeline/executor.h).
//
// The text form follows PyTorch's pipeline schedules (torch.distributed.pipelining): "0F1" is the forward of
// micro-batch 1 on stage 0, "0B1" its full backward, "0I1" and "0W1" the two halves of the backward. A message names
// the stage that runs the action: "1SEND_F3" sends the output of stage 1 for micro-batch 3 to stage 2, which receives
// it with "2RECV_F3"; "2SEND_B3" returns its gradient, received with "1RECV_B3". "0UNSHARD", "0RESHARD",
// "0REDUCE_TIED", "0REDUCE_GRAD" and "0STEP" have no micro-batch. Trifold adds two suffixes, in this order: "@block"
// for an action on one block of the stage ("0B1@3", "0REDUCE_GRAD@3", "0OFFLOAD1@3"), and "v" with a weight version
// ("0F5v2", "0B5@3v2"). "0REDUCE_GRAD1@3" names the micro-batch after which gradients are reduced, if they are reduced
// after every micro-batch. "0READ", "0LOOKUP", "0COLLECT", "0RETURN", "0LOSS", "0NORM" and "0UPDATE_ROWS" belong to
// models with embedding tables (table_step.h).
//
// In CSV, a row is one pipeline rank and a cell one action; an empty cell is an idle step and is dropped.
// "(0F7;7B3)OVERLAP_F_B" is one cell with two actions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

enum class ActionKind : uint8_t {
  F,           // forward
  I,           // gradient with respect to the input
  W,           // gradient with respect to the weights
  B,           // I and W together
  SendF,       // send the output of F to the next stage
  RecvF,       // receive the input of F from the previous stage
  SendB,       // send the gradient of the input to the previous stage
  RecvB,       // receive the gradient of the output from the next stage
  Unshard,     // gather the stage's weights
  Reshard,     // release the stage's weights
  Offload,     // move a block's activations of a micro-batch out of memory
  Fetch,       // move them back
  ReduceTied,  // sum the gradients of a weight that the first stage shares with later ones
  ReduceGrad,  // start summing the gradients of a bucket over the data axis
  Step,        // finish the reductions, then update the weights
  // In a step with embedding tables (table_step.h):
  Read,        // start fetching the next batch
  Lookup,      // look up rows of tables, and send the vectors to the ranks of their samples
  Collect,     // receive the vectors
  Return,      // send the gradients of the vectors to the tables' ranks
  Loss,        // the mean loss over all ranks; ends the run if it is not finite
  Norm,        // finish the reductions, and compute the norm of the gradients
  UpdateRows,  // update the rows that were looked up
};

struct Action {
  static constexpr int kAll = -1;

  ActionKind kind;
  int stage = 0;
  int block = kAll;  // kAll: the whole stage
  int micro = kAll;  // kAll if the kind has no micro-batch
  // For F, I, W and B: the version of the weights they use, that is the number of earlier Steps of the stage in this
  // plan. All actions of a micro-batch on a stage have the same version. 0 in a synchronous plan.
  int version = 0;
  // This action and the next form a pair, written as one cell: a forward and a backward that share the device. Their
  // work alternates (pipeline/executor.h), unless add_communication has split the pair.
  bool overlaps_next = false;
  bool operator==(const Action&) const = default;
};

// A stage whose blocks from `block` on share a weight with block 0 of the earlier stage `of`, which is on the same rank
// or is the first stage.
struct TiedStage {
  int stage = 0;
  int block = 0;
  int of = 0;
  bool operator==(const TiedStage&) const = default;
};

using RankPlan = std::vector<Action>;  // one rank's actions in order
using Plan = std::vector<RankPlan>;    // [pipeline rank]

// Whether action `at` and the next are a pair whose work can alternate: a backward cannot start before the forward of
// its own micro-batch ends.
inline bool can_take_turns(const RankPlan& row, size_t at) {
  return row[at].overlaps_next && at + 1 < row.size() && row[at].micro != row[at + 1].micro;
}

bool is_compute(ActionKind kind);         // F, I, W, B
bool is_backward(ActionKind kind);        // I, W, B
bool is_message(ActionKind kind);         // the four sends and receives
bool is_send(ActionKind kind);            // SendF, SendB
bool is_residency(const Action& action);  // Unshard, Reshard
bool is_offload(ActionKind kind);         // Offload, Fetch
bool has_micro(ActionKind kind);          // compute, messages and off-loading; REDUCE_GRAD may have one
// Whether an action of this kind on a block adds to the gradients of the block's weights. F and I do so only on a block
// whose layer declares it (nn/layer.h).
bool adds_to_gradients(ActionKind kind, bool adds_in_forward, bool adds_in_backward_input);
bool is_of_tables(ActionKind kind);         // Read to UpdateRows
std::string_view name_of(ActionKind kind);  // "F", "SEND_F", ...

// Omits overlaps_next, which only the text of a row can show.
std::string to_string(const Action& action);
// One line per rank.
std::string to_string(const Plan& plan);

// The inverses of to_string. Throw Error(BadInput) with the text that is not an action; parse_plan also names the row
// and the cell, both counted from 1, and skips blank lines.
Action parse_action(std::string_view text);
Plan parse_plan(std::string_view text);

}  // namespace trifold
