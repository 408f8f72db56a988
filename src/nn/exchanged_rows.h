// ExchangedRows: dispatch and combine for experts that are spread over ranks (Lepikhin et al., "GShard",
// arXiv 2006.16668). Each rank of the expert axis holds the same number of experts.
//
//   own rows    the rows of this rank's tokens, one for each choice, sorted by expert and token (OpTable::sort_choices)
//   counts      i32 [ranks, experts + 1]: the own row of each rank at which the rows of each expert begin
//   dispatch    sends own rows to the ranks of their experts, which receive them sorted by rank, expert and token
//   combine     sends the results of received rows back to the own rows
//   round       one dispatch and its combine
//
// If the tensor axis of experts cuts each expert, a row is sent to all ranks that hold a part of its expert. Their
// results are partial sums, which `combine` adds in the order of the ranks.
//
// No row is dropped here: rows of choices that were dropped earlier (nn/expert_capacity.h) come after the rows of all
// experts and are not sent. A rank receives at most the rows that the tokens of all ranks can choose of its experts. If
// there is memory for fewer, they arrive in several rounds; the rank that receives most sets the number for all. Ranks
// and experts without rows still join every collective.
//
// The host must know the counts before it can enqueue a dispatch. It therefore waits once in a layer's forward, until
// the counts of all ranks are in its memory; on a device everything else stays asynchronous.
#pragma once

#include "core/choices.h"
#include "core/small_list.h"
#include "nn/expert_capacity.h"
#include "nn/layer.h"

namespace trifold {

class ExchangedRows {
 public:
  // Each token chooses `choices` of `experts`. In a round a rank receives at most `factor` times the mean number of
  // rows, which is a rank's own rows times the parts of an expert; 0: no limit. With a capacity it also receives at
  // most the rows that a training step keeps, so an evaluation, which drops none, may need several rounds. Throws if
  // the experts cannot be cut evenly; the message names `name`.
  ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices, double factor,
                const ExpertCapacity& capacity, TokenDispatcher dispatcher = TokenDispatcher::AllToAll);
  int64_t ranks() const { return ranks_; }
  int64_t local_experts() const { return local_experts_; }
  // Whether the rows of `tokens` tokens on each rank may need more than one round.
  bool may_need_rounds(const Run& run, int64_t tokens) const {
    return received_limit(run, tokens) < possible_rows(tokens);
  }

  // Gathers `first` [experts + 1] of all ranks, the counts of their own rows (OpTable::sort_choices), into `all`, and
  // copies `all` to `counts`, which is in host memory and which the other functions read. `all` and `counts` may be the
  // same tensor. Waits for the stream.
  void exchange_counts(Run& run, Tensor counts, Tensor all, Tensor first) const;
  // The number of rounds. On a Dry stream it is 1, or follows from WorkLog::load if the stream has a log.
  int64_t rounds(Run& run, Tensor counts) const;
  // The number of rows that this rank receives in a round. On a Dry stream it is the largest possible number if every
  // rank has `tokens` tokens; with a log, WorkLog::load times the mean.
  int64_t received_rows(Run& run, Tensor counts, int64_t tokens, int64_t round) const;
  // Assigns expert [received rows] i32, the local index of each received row's expert; `all` as in exchange_counts.
  void find_experts(Run& run, Tensor expert, Tensor counts, Tensor all, int64_t round) const;
  // Enqueues the dispatch of a round from `own` [own rows, C] into `received` [received rows, C] on stream `on`, which
  // waits for run.stream. Takes scratch that the caller releases once the dispatch has completed.
  void dispatch(Run& run, Tensor received, Tensor own, Tensor counts, int64_t round, Stream& on) const;
  // Combines `results` [received rows, C] into the round's rows of `own`; run.stream waits.
  void combine(Run& run, Tensor own, Tensor results, Tensor counts, int64_t round) const;
  // `combine` in two steps, between which rows are in flight on run.exchanges(). `start_combine` takes scratch that the
  // caller releases after `finish_combine`.
  struct PendingCombine;
  PendingCombine start_combine(Run& run, Tensor own, Tensor results, Tensor counts, int64_t round) const;
  void finish_combine(Run& run, Tensor own, Tensor counts, const PendingCombine& pending) const;

  // With TokenDispatcher::AllGather, `gather` and then `select` replace `dispatch`; every rank must have as many tokens
  // as the others.
  bool gathers() const { return dispatcher_ == TokenDispatcher::AllGather; }
  // Gathers the tokens x [T, C] of all ranks on stream `on`, which waits for run.stream. Returns [ranks T, C] in
  // scratch, which the caller releases.
  Tensor gather(Run& run, Tensor x, Stream& on) const;
  // Assigns the rows that `dispatch` would have received in the round, from the result of `gather`. tokens [ranks, T k]
  // i32 are the tokens of the own rows of each rank (OpTable::sort_choices). No effect with AllToAll.
  void select(Run& run, Tensor received, Tensor gathered, Tensor tokens, Tensor counts, int64_t round) const;

 private:
  // Rows [begin, end) of the own rows that one rank has for another.
  struct Piece {
    int64_t begin = 0, end = 0;
  };
  using Rows = SmallList<int64_t, 8>;  // no allocation up to this many ranks
  class RowCounts;
  // A round as this rank sees it.
  struct Round {
    Rows sent, received;     // rows for and from each rank
    Tensor rows;             // all rows sent: a part of `own`, or scratch into which they are packed
    bool is_packed = false;  // whether `rows` is scratch
    int64_t number = 0;
  };
  Round round_of(Run& run, const RowCounts& counts, const Tensor& own, int64_t number) const;
  // The index on the expert axis of a rank, which holds a part of each of its experts.
  int expert_coord(int rank) const { return rank / parts_; }

  // The most rows that one rank can receive if each rank has `tokens` tokens: in all rounds, and in one.
  int64_t possible_rows(int64_t tokens) const;
  int64_t received_limit(const Run& run, int64_t tokens) const;
  // The limit that the options set for a round, if a rank has `own_rows` own rows.
  int64_t limit_of_round(const Run& run, int64_t own_rows) const;

  int ranks_, rank_;  // the ranks that share the experts, and this rank among them
  int parts_;         // consecutive ranks that each hold a part of the same experts
  int64_t experts_, local_experts_;
  int64_t choices_;
  double factor_;
  ExpertCapacity capacity_;
  TokenDispatcher dispatcher_;
};

// A combine in flight.
struct ExchangedRows::PendingCombine {
  Round round;
  Event arrived;
};

}  // namespace trifold
