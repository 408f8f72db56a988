// Rows of tokens whose experts are spread over the ranks of the expert axis: each rank holds as many experts as
// the others. All to all, a rank sends every row to the rank of its expert, and gets back what that expert has
// made of it (Lepikhin et al., "GShard", arXiv 2006.16668). Before, the ranks exchange how many rows of
// each expert they have; a rank that gets none, or an expert, takes part in everything.
//
// Where the tensor axis of experts cuts each expert, a row goes to all ranks that hold a part of its expert. What these
// make of it are partial sums, which are added up, in the order of the ranks, where the token is.
//
// Rows are sent as they stand sorted by expert and token, so they arrive sorted by rank, expert and token. None
// is dropped here: rows of choices that were dropped before (nn/expert_capacity.h) come after those of all experts and
// stay. As many may arrive as all ranks' tokens can choose of the experts here. Where there is memory for fewer, they
// come in rounds, as many on all ranks as the one needs that gets most.
//
// The host must know how many rows travel before it can enqueue their exchange. It therefore waits once in a layer's
// forward, until the counts of all ranks are in its memory; on a device everything else stays asynchronous.
#pragma once

#include "core/choices.h"
#include "core/small_list.h"
#include "nn/expert_capacity.h"
#include "nn/layer.h"

namespace trifold {

class ExchangedRows {
 public:
  // Each token chooses `choices` of `experts`. A round has at most `factor` times the mean number of arriving rows,
  // which is a rank's own rows times the parts of an expert; 0: no limit. With a capacity also at most the rows that a
  // training step does not drop: these come in one round, and those of an evaluation, which drops none, in as many as
  // it needs. Throws where the experts cannot be cut evenly; the message names `name`.
  ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices, double factor,
                const ExpertCapacity& capacity, TokenDispatcher dispatch = TokenDispatcher::AllToAll);
  int64_t ranks() const { return ranks_; }
  int64_t experts_here() const { return here_; }
  // Whether the rows of `tokens` tokens on each rank may need more than one round.
  bool may_need_rounds(const Run& run, int64_t tokens) const {
    return most_rows(run, tokens) < worst_rows(tokens);
  }

  // Where the rows of each expert begin on each rank, into `all` [ranks, experts + 1] i32 and from there into `counts`,
  // the same in the host's memory, which the other functions read; they may be one. `first` is that of the rows here
  // (OpTable::sort_choices). Waits for the stream.
  void exchange_counts(Run& run, Tensor counts, Tensor all, Tensor first) const;
  // The rounds that such rows need. Where nothing is computed, 1, or those of a walk that counts work.
  int64_t rounds(Run& run, Tensor counts) const;
  // How many rows arrive in a round. Where nothing is computed, the most that can: every rank has `tokens` then; in a walk
  // that counts work, WorkLog::load times the mean.
  int64_t rows_arriving(Run& run, Tensor counts, int64_t tokens, int64_t round) const;
  // The expert of each row that arrives, the first one here being 0, into expert [rows arriving] i32; `all` as above.
  void find_experts(Run& run, Tensor expert, Tensor counts, Tensor all, int64_t round) const;
  // Rows here to the ranks of their experts, and the way back: `arrived` has a row for each that arrives in the
  // round, `own` one for each choice of the tokens here, sorted, of which the round's are read or written. `own` comes
  // back as the sum of what the parts of an expert have made.
  // Rows arrive on stream `on`, which waits for run.stream; `send` takes scratch that the caller gives back after that.
  void send(Run& run, Tensor arrived, Tensor own, Tensor counts, int64_t round, Stream& on) const;
  void send_back(Run& run, Tensor own, Tensor arrived, Tensor counts, int64_t round) const;
  // The way back in two halves, between which rows are under way on run.exchanges(). `start_back` takes scratch that the
  // caller gives back after `end_back`.
  struct Returning;
  Returning start_back(Run& run, Tensor own, Tensor arrived, Tensor counts, int64_t round) const;
  void end_back(Run& run, Tensor own, Tensor counts, const Returning& returning) const;

  // With TokenDispatcher::AllGather, where every rank has as many tokens:
  bool gathers() const { return dispatch_ == TokenDispatcher::AllGather; }
  // The tokens x [T, C] of all ranks, [ranks T, C] in scratch that the caller gives back, on stream `on`, which waits for
  // run.stream.
  Tensor gather(Run& run, Tensor x, Stream& on) const;
  // Selects from the result of `gather` the rows that arrive in a round, in the order of `send`; does nothing with
  // AllToAll. tokens [ranks, T k] i32 are those of the sorted rows of each rank (OpTable::sort_choices).
  void pick(Run& run, Tensor arrived, Tensor gathered, Tensor tokens, Tensor counts, int64_t round) const;

 private:
  // Rows [begin, end) of those that one rank has for another.
  struct Piece {
    int64_t begin = 0, end = 0;
  };
  using Rows = SmallList<int64_t, 8>;  // no allocation up to this many ranks
  class Counted;
  // A round as this rank sees it: the rows that it has for each rank, those that each has for it, and memory for the
  // former: `own` itself if the round has all of its rows, otherwise scratch, into which they are packed.
  struct Round {
    Rows here, there;
    Tensor rows;
    bool is_packed = false;
    int64_t number = 0;
  };
  Round round_of(Run& run, const Counted& counted, const Tensor& own, int64_t round) const;
  // The index on the expert axis of a rank that holds a part of its experts.
  int place_of(int rank) const { return rank / cut_; }

  int64_t worst_rows(int64_t tokens) const;
  int64_t most_rows(const Run& run, int64_t tokens) const;
  // The most rows of a round if a rank has `own_rows` rows of its own.
  int64_t most_of(const Run& run, int64_t own_rows) const;

  int ranks_, rank_;  // that share the experts
  int cut_;           // ranks next to each other, each with a part of the same experts
  int64_t experts_, here_;
  int64_t choices_;
  double factor_;
  ExpertCapacity capacity_;
  TokenDispatcher dispatch_;
};

// Rows on their way back.
struct ExchangedRows::Returning {
  Round round;
  Event arrive;
};

}  // namespace trifold
