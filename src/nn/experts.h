// Experts: the feed-forward part of a mixture of experts (Shazeer et al., arXiv 1701.06538; Fedus et al.,
// "Switch Transformer", arXiv 2101.03961; Jiang et al., "Mixtral", arXiv 2401.04088). A router assigns each token to k
// of E feed-forward networks, the experts, and sums their outputs with weights, the gates:
//   z = x Wr^T,  y_t = sum over the choices i of t of g_ti down_i(activation(up_i(x_t))).
//
//   choice          a token and one of its k experts; g is its gate
//   row             a choice in the order of computation: by expert, then by token (ops/experts.h)
//   dispatch        sends rows to the ranks of their experts (nn/exchanged_rows.h)
//   combine         sends the experts' results back to the ranks of the tokens
//   round           one dispatch, computation of the rows received, and one combine
//   shared expert   a network for all tokens that the caller computes; its output is added
//
// Computation. One grouped product (OpTable::expert_product) multiplies all rows with their experts' weights; an expert
// may have no rows. Without a capacity no choice is dropped, so a micro-batch of T tokens has T k rows. Gates are
// applied before the second projection, so its output need not be saved. Backward recomputes gathered inputs and
// activations; a whole backward of a single round recomputes activations once, and adds the gradients of the second
// projection while it has their factors.
//
// Experts spread over ranks. Each rank sorts the rows that it receives as if each was a token with one choice. A row's
// bits do not depend on the other rows, and a token's rows are summed on the token's rank, so outputs and gradients of
// inputs have the bits of a rank that holds all experts. The gradients of the experts' weights sum the rows of all
// ranks in another order. If the experts themselves are cut, outputs and gradients of rows are sums over their parts. A
// step exchanges rows five times: dispatch and combine in forward, both for gradients in backward, and another dispatch
// of the inputs for the gradients of weights.
//
// Memory is known before the run: for all rows that one rank's experts can receive, or for ExpertsShape::buffer_factor
// times a rank's own rows. If more arrive, they are computed in several rounds. Nothing is then kept of them: backward
// recomputes them twice, for the gradients of inputs and of weights.
//
// Overlap. With a single round, dispatch runs on the side stream and overlaps with the shared expert; combine does not
// overlap. In a pair of actions (Run::other_half), every dispatch and combine overlaps with the other half, in forward
// and backward, and a whole backward sends the inputs again while gradients are combined. With several rounds nothing
// overlaps, because their number depends on data.
//
// Sequence parallelism. A tensor rank holds some of the rows and dispatches these over the expert grid. Router losses
// need whole sequences, so tensor ranks all-gather logits, and gradients of gates in backward. Each rank routes all
// rows and uses the gates of its own.
//
// Context parallelism. A rank routes its own positions of each sequence; counts of choices are summed over the context
// ranks, as integers, so each rank knows the counts of whole sequences. With a capacity, ranks also all-gather choices
// and gates, and each rank decides for whole sequences.
//
// Capacity (nn/expert_capacity.h). The rows of dropped choices follow the rows of all experts. They are neither
// computed nor sent, and are 0 when the rows of a token are summed.
//
// Counts of choices, for losses, biases and reports, cover all tokens of the data, including tokens with a loss weight
// of 0. Samples that only fill up a batch (Batch::padding) are routed but not counted, so counts do not depend on the
// mesh or on the batch size.
//
// Selection bias. A router may have a bias for each expert that is added to its scores only to choose experts, and has
// no gradient. After each step the trainer raises it for experts with fewer choices than the mean and lowers it for the
// others (Wang et al., "Auxiliary-loss-free load balancing", arXiv 2408.15664; train/expert_loads.h).
//
// Losses. The router adds two losses for each token, with the weights of the model's loss (OpTable::router_losses):
// `z`, and `balance`, with choices counted over the token's sequence, so that it does not depend on the mesh or the
// micro-batch, or over its micro-batch, or over the previous global batch. Counts of the previous global batch are
// integers, summed over all ranks and known before the first micro-batch; before the first one has ended, that
// loss is 0.
//
// Noise. In training the router's input may be multiplied by random numbers (the jitter of Fedus et al.). For
// benchmarks the logits may be replaced by random numbers of variance 1, which load experts evenly; their gradients are
// passed on as the gradients of the logits. Both are keyed by position (for_each_dropout), so they depend neither on
// the mesh nor on recomputation.
#pragma once

#include <optional>
#include <string>

#include "core/choices.h"
#include "nn/exchanged_rows.h"
#include "nn/expert_biases.h"
#include "nn/expert_capacity.h"
#include "nn/product_weight.h"
#include "nn/residual.h"

namespace trifold {

struct ExpertsShape {
  int64_t experts = 0;  // E; 0 if one network serves all tokens
  Router router;
  RouterLosses losses;
  double buffer_factor = 0;     // limits the rows of a round, see ExchangedRows
  bool selection_bias = false;  // only with RouterGate::Sigmoid
  ExpertCapacity capacity = {};
  RouterBalance balance = RouterBalance::SequenceAuxLoss;
  double jitter = 0;            // in training the router's input is multiplied by U(1 - jitter, 1 + jitter)
  bool random_choices = false;  // in training steps, logits are random
  TokenDispatcher dispatch = TokenDispatcher::AllToAll;  // if experts are spread over ranks
  bool bias = false;  // the router's logits and the experts' projections have biases (nn/expert_biases.h)
};

// Names of the reports of Experts (nn/reports.h). Choices of this rank's tokens are counted, without Batch::padding.
struct ExpertReports {
  // Loss terms, summed over all blocks with experts: the two losses of the routers, without coefficients.
  static constexpr const char* kBalance = "router balance";
  static constexpr const char* kZ = "router z";
  // Counters.
  static constexpr const char* kChoices = "choices";          // [E], of each expert
  static constexpr const char* kRounds = "rounds";            // [1], the largest number of rounds
  static constexpr const char* kDropped = "dropped choices";  // [1], with a capacity
  // [E], with RouterBalance::GlobalAuxLoss: choices as they would be without selection bias and groups.
  static constexpr const char* kPreferred = "preferred choices";
  // Host value [E] with RouterBalance::GlobalAuxLoss: the preferred choices of all ranks in the previous global batch.
  static constexpr const char* kLastChoices = "last choices";
};

class Experts final : public Layer {
 public:
  // Parameters:
  //   <name>.router.weight        [E, C]
  //   <name>.router.bias          [E], with a selection bias
  //   <name>.router.logits.bias   [E], with biases, which experts have too: <name>.experts.{up, down}.bias
  //   <name>.experts.up.weight    [E, F, C], or with a gate [E, 2, F, C] = [gate | up]
  //   <name>.experts.down.weight  [E, C, F]
  // The experts' weights are cut along E over the expert axis, and along F over the tensor axis of experts. Throws if
  // these axes do not divide E and F, or if there are several tensor ranks without sequence parallelism.
  Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
          int64_t ffn, const ActivationForm& activation, Init up, Init down);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [T, C] -> [T, C]
  // Computes the shared expert on run.stream, forward or backward. The result [T, C] is in run.scratch or run.flow.
  using SharedExpert = std::optional<FunctionRef<Tensor()>>;
  // The sum of `add`, whose x is forward(x) + shared(), in run.output().
  Tensor forward_added(Run& run, const ResidualAdd& add, Tensor residual, Tensor x, SharedExpert shared,
                       Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {  // [T, C] -> [T, C]
    return backward_input(run, dy, {}, saved);
  }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override { return backward(run, dy, {}, saved); }
  // Both with shared() added to the gradient of x. If run.flow is run.scratch, the memory that shared() takes of it is
  // released.
  Tensor backward_input(Run& run, Tensor dy, SharedExpert shared, Saved& saved) const {
    return compute_backward(run, dy, shared, saved, false);
  }
  Tensor backward(Run& run, Tensor dy, SharedExpert shared, Saved& saved) const {
    return compute_backward(run, dy, shared, saved, true);
  }
  void backward_weight(Run& run, Saved& saved) const override { add_gradients(run, {}, saved, true); }
  bool weight_backward_reads_weights() const override { return exchange_ && shape_.buffer_factor > 0; }
  // Replaces the input that forward saved by a recomputed one, before backward_weight.
  void set_input(Saved& saved, Tensor x) const { saved[x_] = x; }

 private:
  // Rows sorted by expert: the first row of each expert and, in own_, of dropped choices if choices may be dropped; the
  // row of each choice; and the token of each row.
  struct Order {
    SlotId first, row, token;
  };

  // The rows of a round, sorted by local expert, and the tensors computed from them. Without an exchange, the own rows.
  struct Round {
    Tensor first, row, token;  // as in Order; a token is the index of a received row
    Tensor gates;
    Tensor inner;       // the output of the first projection
    Tensor dy, dinner;  // dy in the order received
    int64_t number = 0;
    bool is_kept = true;  // all tensors are in save slots
  };

  // Takes memory for all that is kept for backward, except the output, and routes x.
  void route_input(Run& run, Tensor x, Saved& saved) const;
  // Forward of the saved input into y [T, C]. Returns shared(), in scratch that the caller releases.
  Tensor compute_output(Run& run, Tensor y, SharedExpert shared, Saved& saved) const;
  // own_rows returns this rank's rows of a tensor over all tensor ranks; `gathered` is the inverse.
  Tensor own_rows(Tensor all) const;
  Tensor gathered(Run& run, Arena& arena, Tensor own) const;
  // Batch::padding of all tokens, and of this rank's rows; no data if there is none.
  static Tensor padding(const Run& run);
  Tensor own_padding(const Run& run) const;
  bool jitters(const Run& run) const { return shape_.jitter > 0 && run.training; }
  // y = x times the jitter of each element; y may be x.
  void jitter(Run& run, Tensor y, Tensor x) const;
  // The router's input: x itself, or a copy with jitter in scratch.
  Tensor router_input(Run& run, Tensor x) const;
  // Logits of this rank's rows x.
  void compute_logits(Run& run, Tensor logits, Tensor x) const;
  bool counts_last_batch() const { return shape_.balance == RouterBalance::GlobalAuxLoss; }
  // The number of groups of tokens, sequences or one micro-batch, over which the balance loss counts choices.
  int64_t balance_groups(const Run& run) const {
    return shape_.balance == RouterBalance::AuxLoss || counts_last_batch() ? 1 : run.batch->samples();
  }
  // Computes gates, the order of rows, and the router's losses from saved[logits_].
  void route(Run& run, Saved& saved) const;
  // Whether choices may be dropped: with a capacity, in a training step.
  bool drops(const Run& run) const { return shape_.capacity.factor > 0 && run.has_backward(); }
  // The choices of all tokens, in scratch; a dropped choice has the value E.
  Tensor choices_after_drops(Run& run, const Saved& saved) const;
  // Sorts the choices of this rank's tokens into own_, dropped ones last, and counts the dropped ones.
  void sort_choices(Run& run, const Saved& saved) const;
  // Sets the rows of dropped choices to 0; `rows` has one row for each own choice.
  void clear_dropped(Run& run, Tensor rows, const Saved& saved) const;
  // Counts the choices of this rank's tokens, and records the number of rounds.
  void count_choices(Run& run, const Saved& saved) const;
  // Counts the choices without selection bias and groups, for the balance loss of the next global batch.
  void count_preferred(Run& run, const Saved& saved) const;
  // Writes saved[counts_] if the balance loss counts choices of other ranks or batches; returns whether it did.
  bool find_counts(Run& run, Tensor balance, Tensor z, const Saved& saved) const;
  // Counts the choices of whole sequences into saved[counts_]; `balance` and `z` [T] are scratch.
  void count_over_context(Run& run, Tensor balance, Tensor z, const Saved& saved) const;
  // Whether one round has all rows.
  bool single_round(Run& run, const Saved& saved) const;
  // Prepares a round: orders the rows received and exchanges their gates. Tensors are in `arena`; `inner` is not
  // computed.
  Round make_round(Run& run, Arena& arena, const Saved& saved, int64_t number) const;
  // The single round, from save slots.
  Round kept_round(const Saved& saved) const;
  // Calls body(round) for the kept round, or for each of several rounds, which are in scratch during the call.
  template <class Body>
  void for_each_round(Run& run, const Saved& saved, Body body) const;
  // Dispatches x [T, C] in a single round into `received`, overlapped with shared(), whose result it returns. `sorted`
  // is memory with a row for each own choice.
  Tensor dispatch_overlapped(Run& run, Tensor received, Tensor sorted, Tensor x, SharedExpert shared,
                             const Saved& saved) const;
  // Enqueues the dispatch of x [T, C] in round `number` on stream `on`, and returns the argument `gathered` of
  // ExchangedRows::select, which the caller calls once run.stream has waited.
  Tensor start_dispatch(Run& run, Tensor received, Tensor sorted, Tensor x, const Saved& saved,
                        int64_t number, Stream& on) const;
  // The rows of x [T, C] that a round receives, in `arena`; x itself without an exchange.
  Tensor dispatched(Run& run, Arena& arena, Tensor x, const Saved& saved, const Round& round) const;
  // Assigns rows [rows, C] of x [T, C] in the order of the round. `received` has the rows as received; if it has no
  // dims, x is dispatched.
  void gather_rows(Run& run, Tensor rows, Tensor x, Tensor received, const Saved& saved,
                   const Round& round) const;
  // Assigns round.inner from the saved input; `rows` [rows, C] is scratch, `received` as above.
  void compute_inner(Run& run, Tensor rows, Tensor received, const Saved& saved, const Round& round) const;
  // Assigns round.dinner from round.dy, and dgates in the order received; `rows` as above. Adds the gradients of the
  // second projection if `with_down`: its factors are at hand here.
  void compute_dinner(Run& run, Tensor rows, Tensor dgates, const Saved& saved, const Round& round,
                      bool with_down) const;
  // Adds the gradients of the second projection, from dy in the order of the round and its input a, with gates.
  void add_down_gradient(Run& run, Tensor dy, Tensor a, const Round& round) const;
  // Combines the experts' results `rows` [rows, columns] into `sorted`, which has a row for each own choice. If
  // `received_x` has dims, the saved input is dispatched again, into it.
  void combine(Run& run, Tensor sorted, Tensor rows, Tensor received_x, const Saved& saved,
               const Round& round) const;
  // Yields to the other half as often as a single round does. Called before several rounds, which do not yield.
  void yield_for_rounds(Run& run) const;
  // Returns the gradient of x; adds the gradients of weights if `with_weights`.
  Tensor compute_backward(Run& run, Tensor dy, SharedExpert shared, Saved& saved, bool with_weights) const;
  // Adds the gradients of weights; the second projection's only if `with_down`. `received` is the input as dispatched again,
  // without dims if it was not.
  void add_gradients(Run& run, Tensor received, Saved& saved, bool with_down) const;
  // Columns of the first projection's output; a gate has two for each column of the second projection's input.
  int64_t inner_width() const { return activation_.gated() ? 2 * ffn_ : ffn_; }
  // The first projections of the local experts, [E, F, C], or [E, 2F, C] with a gate.
  Tensor up_matrices(Tensor up) const {
    return up.reshape({up.dim(0), up.row_count() / up.dim(0), up.last_dim()});
  }
  // The grouped products with the local experts' projections (OpTable::expert_product).
  void up_product(Run& run, Tensor y, Tensor x, Tensor first, bool forward) const;
  void down_product(Run& run, Tensor y, Tensor x, Tensor first, bool forward) const;
  // a [rows, F] = gate * activation(round.inner)
  void activate(Run& run, Tensor a, const Round& round) const;
  static ExpertBiases::Rows biased_rows(const Round& round) { return {round.first, round.gates, round.row}; }
  static Tensor take_rows(Run& run, const Round& round, int64_t columns) {
    return run.scratch.take(run.dtype, {round.token.elements(), columns});
  }
  // Memory for own rows; without an exchange, rows_of returns the same memory for the rows of the round.
  Tensor take_sorted(Run& run, const Saved& saved, int64_t columns) const {
    return run.scratch.take(run.dtype, {saved[own_.token].elements(), columns});
  }
  Tensor rows_of(Run& run, const Round& round, Tensor sorted) const {
    return exchange_ ? take_rows(run, round, sorted.last_dim()) : sorted;
  }

  std::string name_, router_name_, up_name_;  // as Run::show passes them
  ExpertsShape shape_;
  int64_t ffn_;  // this rank's part of F
  ActivationForm activation_;
  int parts_, part_;  // tensor ranks that a micro-batch's rows are cut over, and this rank's index
  int context_;       // ranks that positions are cut over
  PhiloxKey jitter_key_, random_key_;
  std::optional<ExchangedRows> exchange_;  // if experts are spread over ranks
  ParamId router_;
  std::optional<ParamId> bias_;  // the selection bias
  std::optional<ParamId> router_bias_;
  ProductWeight up_, down_;
  std::optional<ExpertBiases> biases_;
  LossTermId balance_, z_;
  CounterId choices_, rounds_;
  std::optional<CounterId> dropped_, preferred_;
  std::optional<HostValueId> last_choices_;
  SlotId x_, logits_, gates_, chosen_, counts_;
  Order own_;           // own rows
  SlotId row_counts_;   // `all` of ExchangedRows::exchange_counts
  SlotId host_counts_;  // row_counts_ in host memory
  SlotId tokens_;       // tokens of the own rows of each rank, if exchange_->gathers()
  Order here_;          // rows of the kept round; own_ without an exchange
  SlotId gates_here_;   // gates of the kept round
  SlotId inner_, dy_, dlogits_, dinner_;
};

}  // namespace trifold
