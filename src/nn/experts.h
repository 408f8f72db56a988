// Experts: the feed-forward part of a mixture of experts (Shazeer et al., arXiv 1701.06538; Fedus et al.,
// "Switch Transformer", arXiv 2101.03961; Jiang et al., "Mixtral", arXiv 2401.04088). A router gives every
// token to k of E feed-forward networks, whose outputs it weighs and adds up:
//   z = x Wr^T,  y_t = sum over the choices i of t of g_ti down_i(activation(up_i(x_t))).
//
// Without a capacity no token is dropped: a micro-batch of T tokens has T k rows. Rows are sorted by expert and meet one
// product with all experts' weights; an expert may have none. The gates are applied before the second projection, which
// keeps its result from having to be saved. What only moves rows is done again in backward: gathered inputs, and
// activations.
//
// Where experts are spread over ranks (nn/exchanged_rows.h), a row meets its expert on that expert's rank, which
// sorts what has arrived as if each row was a token with one choice. A row's bits do not depend on the others,
// and a token's rows are added up where the token is, so outputs and their gradients have the bits of ranks that
// hold all experts; gradients of the experts' weights are sums over the rows of all ranks at once, in another
// order. Rows cross the ranks five times: forward and back, gradients forward and back, and inputs once more for
// the weights. Memory is known before the run: that of all rows of all ranks that one rank's experts can get, or
// of ExpertsShape::buffer_factor times the rows of a rank. Where more arrive than that, they meet their experts
// in rounds. Nothing is kept of these then: backward computes them again, once for inputs and once for weights.
// Where the experts themselves are cut, outputs and gradients of rows are sums of what their parts make of them.
// Rows that come at once travel on the side stream while what is `beside` the experts is computed, such as a network for
// all tokens; what comes back does not. Beside another half (Run::other_half) that computes too, there and back, in forward and
// backward, and what crosses a third time in a whole backward goes when gradients come back.
//
// Under sequence parallelism a tensor rank has some of the rows, and its experts are those of the expert grid: it
// sends its own rows. Router losses are of whole sequences, so tensor ranks gather each other's logits, and going
// back the gradients of each other's gates; all of them route all rows, and use the gates of their own.
//
// With a capacity (nn/expert_capacity.h) the rows of dropped choices come after those of all experts. They are in no
// product, are sent nowhere, and are 0 where the rows of a token are added up.
//
// Context ranks have some of the positions of each sequence, and route these; their counts of choices are added up,
// whole numbers, so that each knows those of the whole sequence. With a capacity they also gather each other's choices and
// gates, and all decide for whole sequences.
//
// Choices are counted, for losses, biases and reports, of all tokens of the data, those with a loss weight of 0 too. Samples
// that only fill up a batch (Batch::padding) are routed like others but counted nowhere, so no mesh or batch size changes a count.
//
// A router may have a bias for each expert that is added to its score for choosing alone, and has no gradient:
// after each step the trainer raises it for experts with fewer choices than the mean, and lowers it for the others
// (Wang et al., "Auxiliary-loss-free load balancing", arXiv 2408.15664; train/expert_loads.h).
//
// Besides the loss of the model, the router has two losses for each token, with the same weights as the
// model's loss (OpTable::router_losses): `balance`, with choices counted over the token's own sequence, so that no mesh or
// micro-batch changes it, over its micro-batch, or over the last global batch; and `z`. Those of the last global batch
// are known before the first micro-batch, and the same for all: whole numbers, summed over all ranks. Before there was one,
// the loss is 0.
//
// In training the router's input may be multiplied by random numbers (the jitter of Fedus et al.), and for benchmarks
// its logits replaced by some of variance 1, whose gradients they get: experts are loaded evenly then. Both are keyed by
// position (for_each_dropout), so neither the mesh nor recomputation changes them.
#pragma once

#include <optional>
#include <string>

#include "core/choices.h"
#include "nn/exchanged_rows.h"
#include "nn/expert_capacity.h"
#include "nn/layers.h"

namespace trifold {

struct ExpertsShape {
  int64_t experts = 0;  // E; 0 if one network serves all tokens
  Router router;
  RouterLosses losses;
  double buffer_factor = 0;     // of ExchangedRows
  bool selection_bias = false;  // only with RouterGate::Sigmoid
  ExpertCapacity capacity = {};
  RouterBalance balance = RouterBalance::SequenceAuxLoss;
  double jitter = 0;            // in training the router's input is multiplied by U(1 - jitter, 1 + jitter)
  bool random_choices = false;  // in training; see above
  TokenDispatcher dispatch = TokenDispatcher::AllToAll;  // where experts are spread over ranks
};

// The names of what Experts reports (nn/reports.h). Choices are those of this rank's tokens, without Batch::padding.
struct ExpertReports {
  // Loss terms, summed over all blocks with experts: the routers' two losses, without coefficients.
  static constexpr const char* kBalance = "router balance";
  static constexpr const char* kZ = "router z";
  // Counters: [E], the choices of each expert; [1], the largest number of rounds in which rows have come; with a capacity
  // [1], the choices that were dropped; and for RouterBalance::GlobalAuxLoss [E], what routers would choose without bias and groups.
  static constexpr const char* kChoices = "choices";
  static constexpr const char* kRounds = "rounds";
  static constexpr const char* kDropped = "dropped choices";
  static constexpr const char* kPreferred = "preferred choices";
  // Host value [E] for RouterBalance::GlobalAuxLoss: the preferred choices of all ranks in the last global batch.
  static constexpr const char* kLastChoices = "last choices";
};

class Experts final : public Layer {
 public:
  // Parameters <name>.router.weight [E, C], with a selection bias <name>.router.bias [E],
  // <name>.experts.up.weight [E, F, C], or [E, 2, F, C] = [gate | up] of Swiglu, and <name>.experts.down.weight
  // [E, C, F]; the experts' are cut over the expert axis, F over the tensor axis of experts. Throws where these do not
  // divide them, or activations between linear layers are whole on several tensor ranks.
  Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
          int64_t ffn, ActivationKind activation, Init up, Init down);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [T, C] -> [T, C]
  // Computes something else on run.stream, with a result [T, C] in run.scratch or run.flow.
  using Beside = std::optional<FunctionRef<Tensor()>>;
  // residual + (forward(x) + beside()) through the dropout of `add`, in run.output().
  Tensor forward_added(Run& run, const DropoutAdd& add, Tensor residual, Tensor x, Beside beside,
                       Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {  // [T, C] -> [T, C]
    return backward_input(run, dy, {}, saved);
  }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override { return backward(run, dy, {}, saved); }
  // Both plus beside(). If run.flow is run.scratch, what that takes of it is given back.
  Tensor backward_input(Run& run, Tensor dy, Beside beside, Saved& saved) const {
    return walk_back(run, dy, beside, saved, false);
  }
  Tensor backward(Run& run, Tensor dy, Beside beside, Saved& saved) const {
    return walk_back(run, dy, beside, saved, true);
  }
  void backward_weight(Run& run, Saved& saved) const override { add_gradients(run, {}, saved); }
  bool weight_backward_reads_weights() const override { return exchange_ && shape_.buffer_factor > 0; }
  // Replaces the input that forward saved by a recomputed one, before backward_weight.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }

 private:
  // Rows sorted by expert: where each expert's begin, and in own_ those of dropped choices if there may be any; the row
  // of each choice; and the token of each row.
  struct Order {
    SlotId first, row, token;
  };

  // Rows that meet the experts here at once, sorted, and what is computed with them.
  struct Part {
    Tensor first, row, token;  // where each expert's begin, the row of each that arrived, and the reverse
    Tensor gates;
    Tensor inner;
    Tensor dy, dinner;  // dy as it arrived
    int64_t round = 0;
    bool kept = true;  // all of it is in slots
  };

  // Takes memory for everything that is kept of an input x except the output, and computes the router's part.
  void take_kept(Run& run, Tensor x, Saved& saved) const;
  // The forward of the saved input, into y [T, C]; returns beside(), in scratch, which is given back by the caller.
  Tensor mix(Run& run, Tensor y, Beside beside, Saved& saved) const;
  // The tokens here of what is there for those of all tensor ranks, and back.
  Tensor own(Tensor all) const;
  // Batch::padding for all tokens, and for those here; no memory if there is none.
  static Tensor padding(const Run& run);
  Tensor own_padding(const Run& run) const;
  Tensor gathered(Run& run, Arena& arena, Tensor mine) const;
  bool jitters(const Run& run) const { return shape_.jitter > 0 && run.training; }
  // y = x times the jitter of each element; y may be x. router_input returns the router's input for x: x itself, or a
  // copy in scratch.
  void jitter(Run& run, Tensor y, Tensor x) const;
  Tensor router_input(Run& run, Tensor x) const;
  // The logits of the tokens here.
  void compute_logits(Run& run, Tensor logits, Tensor x) const;
  bool counts_last_batch() const { return shape_.balance == RouterBalance::GlobalAuxLoss; }
  // Sequences, or micro-batches, over which the balance loss counts choices.
  int64_t balance_groups(const Run& run) const {
    return shape_.balance == RouterBalance::AuxLoss || counts_last_batch() ? 1 : run.batch->samples();
  }
  // Computes gates, the order of rows, and the router's losses from saved[logits_].
  void route(Run& run, Saved& saved) const;
  // Whether choices may be dropped: with a capacity, in a training step.
  bool drops(const Run& run) const { return shape_.capacity.factor > 0 && run.has_backward(); }
  // The choices of all tokens, in scratch, with the number of experts in the place of dropped ones.
  Tensor taken(Run& run, const Saved& saved) const;
  // Sorts the choices of the tokens here, dropped ones last, and counts these.
  void sort_own(Run& run, const Saved& saved) const;
  // Zeros in the rows of dropped choices, of `rows`, which has one for each choice here.
  void clear_dropped(Run& run, Tensor rows, const Saved& saved) const;
  // Counts what the tokens here have chosen, and notes the rounds that their rows come in.
  void count(Run& run, const Saved& saved) const;
  // The same with what they would choose without bias and groups, for the balance loss of the next global batch.
  void count_preferred(Run& run, const Saved& saved) const;
  // Writes saved[counts_] if these are not just those of the tokens here, and returns whether it did.
  bool find_counts(Run& run, Tensor balance, Tensor z, const Saved& saved) const;
  // Counts the choices of whole sequences into saved[counts_]; `balance` and `z` [T] are scratch.
  void count_over_context(Run& run, Tensor balance, Tensor z, const Saved& saved) const;
  bool at_once(Run& run, const Saved& saved) const;
  // What arrives in a round: how much, in which order, and its gates; memory for `inner`.
  Part arriving(Run& run, Arena& arena, const Saved& saved, int64_t round) const;
  Part kept(const Saved& saved) const;
  // Calls body(part) for what was kept, or for each round, in scratch that is given back after it.
  template <class Body>
  void for_each_part(Run& run, const Saved& saved, Body body) const;
  // Rows of x [T, C] that all arrive at once, into `arrived`, and beside() meanwhile. They leave from `sorted`, which
  // has one for each choice.
  Tensor send_beside(Run& run, Tensor arrived, Tensor sorted, Tensor x, Beside beside,
                     const Saved& saved) const;
  // Starts to send the rows of x [T, C] of a round on stream `on`. After run.stream has waited, ExchangedRows::pick ends it.
  Tensor start_dispatch(Run& run, Tensor arrived, Tensor sorted, Tensor x, const Saved& saved, int64_t round,
                        Stream& on) const;
  // x [T, C] as it reaches the experts here: all of it, or in `arena` the rows that arrive.
  Tensor dispatched(Run& run, Arena& arena, Tensor x, const Saved& saved, const Part& part) const;
  // The same in the order of the part, into rows [rows, C]; as it arrived, if it has dims.
  void take_in(Run& run, Tensor rows, Tensor x, Tensor arrived, const Saved& saved, const Part& part) const;
  // part.inner of the input that was kept. `rows` is memory of [rows, C]; `arrived` as above.
  void compute_inner(Run& run, Tensor rows, Tensor arrived, const Saved& saved, const Part& part) const;
  // part.dinner of part.dy, and dgates as they are sent back. `rows` as above.
  void compute_dinner(Run& run, Tensor rows, Tensor dgates, const Saved& saved, const Part& part) const;
  // Sends the experts' outputs of a part, [rows, columns] in its order, back to the ranks of the tokens: into the rows
  // of `sorted`, one for each choice here. If `again` has dims, the kept input travels along and arrives there.
  void give_back(Run& run, Tensor sorted, Tensor rows, Tensor again, const Saved& saved,
                 const Part& part) const;
  // Where rows come in rounds, whose number depends on data, they are under way by themselves.
  void take_turns(Run& run) const;
  Tensor walk_back(Run& run, Tensor dy, Beside beside, Saved& saved, bool with_weights) const;
  // The gradients of weights. `again` is the input as it has arrived, if it has dims.
  void add_gradients(Run& run, Tensor again, Saved& saved) const;
  // Columns of the first projection: two of Swiglu for each of the second.
  int64_t inner_width() const { return activation_ == ActivationKind::Swiglu ? 2 * ffn_ : ffn_; }
  // The first projections of the experts here, [E, F, C] or, of Swiglu, [E, 2F, C].
  Tensor up_matrices(Tensor up) const {
    return up.reshape({up.dim(0), up.row_count() / up.dim(0), up.last_dim()});
  }
  // activation(part.inner), times the gates, in `to` [rows, F].
  void activate(Run& run, Tensor to, const Part& part) const;
  static Tensor take_rows(Run& run, const Part& part, int64_t columns) {
    return run.scratch.take(run.dtype, {part.token.elements(), columns});
  }
  // Memory for what comes back, which without an exchange is that of the part's rows.
  Tensor take_sorted(Run& run, const Saved& saved, int64_t columns) const {
    return run.scratch.take(run.dtype, {saved[own_.token].elements(), columns});
  }
  Tensor rows_of(Run& run, const Part& part, Tensor sorted) const {
    return exchange_ ? take_rows(run, part, sorted.last_dim()) : sorted;
  }

  std::string name_, router_name_, up_name_;  // as shown
  ExpertsShape shape_;
  int64_t ffn_;  // of an expert, as much as is here
  ActivationKind activation_;
  int parts_, part_;  // of the rows of a micro-batch, over tensor ranks
  int context_;       // ranks that positions are cut over
  PhiloxKey jitter_key_, random_key_;
  std::optional<ExchangedRows> exchange_;  // where the experts are spread over ranks
  ParamId router_;
  std::optional<ParamId> bias_;  // of the router
  ParamId up_, down_;
  LossTermId balance_, z_;
  CounterId choices_, rounds_;
  std::optional<CounterId> dropped_, preferred_;
  std::optional<HostValueId> last_choices_;
  SlotId x_, logits_, gates_, chosen_, counts_;
  Order own_;          // of the choices of the tokens here
  SlotId firsts_;      // of `exchange_`: where the rows of each expert begin on each rank;
  SlotId arriving_;    // the same in the host's memory
  SlotId tokens_;      // of `exchange_`, if it gathers: the tokens of the rows of each rank
  Order here_;         // of the rows of the experts here; own_ where all experts are here
  SlotId gates_here_;  // of these rows, or of the choices of the tokens here
  SlotId inner_, dy_, dlogits_, dinner_;
};

}  // namespace trifold
