#include "nn/exchanged_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trifold {

// The counts of all ranks as the host reads them. On a Dry stream without a log they are unknown and all 0. On one with
// a log they are planned: all ranks have the same number of own rows, this rank receives WorkLog::load times the mean,
// and the other ranks receive equal parts of the rest.
class ExchangedRows::RowCounts {
 public:
  RowCounts(const ExchangedRows& exchange, Run& run, const Tensor& counts)
      : ranks_(exchange.ranks_), coords_(exchange.ranks_ / exchange.parts_), parts_(exchange.parts_) {
    const WorkLog* log = run.stream.log();
    known_ = log != nullptr || run.stream.mode() != Stream::Mode::Dry;
    if (!known_) return;
    planned_ = log != nullptr;
    if (planned_) {
      add_planned(exchange, run, log->load());
      limit_ = exchange.limit_of_round(run, before_.back());
      return;
    }
    int64_t largest = 0;
    for (int from = 0; from < ranks_; ++from) {
      const int32_t* first = counts.as<int32_t>() + from * (exchange.experts_ + 1);
      for (int coord = 0; coord <= coords_; ++coord)
        before_.push_back(first[coord * exchange.local_experts_]);
      largest = std::max(largest, before_.back());
    }
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to)
        received_.push_back(from == 0 ? 0 : received_before(from - 1, to) + rows(from - 1, to));
    limit_ = exchange.limit_of_round(run, largest);
  }

  bool known() const { return known_; }
  // The own rows of rank `from`: for rank `to`, for experts before the experts of `to`, and all.
  int64_t rows(int from, int to) const { return before_coord(from, to / parts_ + 1) - before(from, to); }
  int64_t before(int from, int to) const { return before_coord(from, to / parts_); }
  int64_t all(int from) const { return before_coord(from, coords_); }
  // The most rows that a rank receives in a round.
  int64_t limit() const { return limit_; }
  int64_t rounds() const {
    int64_t most = 1;
    for (int to = 0; to < ranks_; ++to) {
      const int64_t received = received_before(ranks_ - 1, to) + rows(ranks_ - 1, to);
      most = std::max(most, (received + limit_ - 1) / limit_);
    }
    return most;
  }
  // The rows that `from` sends to `to` in a round. `to` receives the rows of lower ranks first.
  Piece piece(int from, int to, int64_t round) const {
    const int64_t begin = received_before(from, to);
    const int64_t count = rows(from, to);
    const auto inside = [&](int64_t row) { return std::clamp<int64_t>(row - begin, 0, count); };
    return {inside(round * limit_), inside((round + 1) * limit_)};
  }

  static constexpr int64_t kUnlimited = int64_t{1} << 40;  // more than there are rows

 private:
  using Sums = SmallList<int64_t, 72>;  // no allocation up to 8 ranks

  // Fills `before_` as planned: with one row for all ranks.
  void add_planned(const ExchangedRows& exchange, const Run& run, double load) {
    const int64_t all = run.batch->tokens.elements() / run.mesh.size(Axis::Tp) * exchange.choices_;
    const int own_coord = exchange.rank_ / parts_;
    const double to_own_coord = std::min(load / coords_, 1.0) * static_cast<double>(all);
    const double to_other_coord = coords_ > 1 ? (static_cast<double>(all) - to_own_coord) / (coords_ - 1) : 0;
    for (int coord = 0; coord <= coords_; ++coord)
      before_.push_back(coord > own_coord ? std::llround((coord - 1) * to_other_coord + to_own_coord)
                                          : std::llround(coord * to_other_coord));
  }

  int64_t before_coord(int from, int coord) const {
    if (!known_) return 0;
    return before_[static_cast<size_t>((planned_ ? 0 : from * (coords_ + 1)) + coord)];
  }
  // The rows that ranks below `from` have for `to`.
  int64_t received_before(int from, int to) const {
    if (!known_) return 0;
    return planned_ ? from * rows(from, to) : received_[static_cast<size_t>(from * ranks_ + to)];
  }

  int ranks_, coords_, parts_;
  bool known_, planned_ = false;
  Sums before_;    // [from, coord], 0 to coords_: own rows for lower coords; planned: one row for all ranks
  Sums received_;  // [from, to], received_before; empty if planned
  int64_t limit_ = kUnlimited;  // rows that a rank receives in a round
};

ExchangedRows::ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices,
                             double factor, const ExpertCapacity& capacity, TokenDispatcher dispatcher)
    : ranks_(mesh.sizes().ranks(kExpertShareAxes)),
      rank_(place_along(kExpertShareAxes, mesh.coords(), mesh.sizes())),
      parts_(mesh.size(Axis::Etp)),
      experts_(experts),
      local_experts_(experts / mesh.size(Axis::Ep)),
      choices_(choices),
      factor_(factor),
      capacity_(capacity),
      dispatcher_(dispatcher) {
  check(experts % mesh.size(Axis::Ep) == 0, "{}: {} experts cannot be cut over {} expert-parallel ranks",
        name, experts, mesh.size(Axis::Ep));
}

int64_t ExchangedRows::limit_of_round(const Run& run, int64_t own_rows) const {
  int64_t limit = RowCounts::kUnlimited;
  if (factor_ > 0)
    limit = std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(factor_ * parts_ * static_cast<double>(own_rows))));
  if (capacity_.factor == 0) return limit;
  // A rank keeps at most as many choices of an expert as it has tokens of the sequence.
  const int64_t rows_of_expert =
      std::min(run.batch->seq_length(),
               expert_capacity(capacity_.factor, run.batch->held_rows().length(), choices_, experts_));
  return std::min(limit, ranks_ * run.batch->samples() * rows_of_expert * local_experts_);
}

int64_t ExchangedRows::possible_rows(int64_t tokens) const {
  return ranks_ * tokens * std::min(choices_, local_experts_);
}

int64_t ExchangedRows::received_limit(const Run& run, int64_t tokens) const {
  return std::min(possible_rows(tokens), limit_of_round(run, tokens * choices_));
}

void ExchangedRows::exchange_counts(Run& run, Tensor counts, Tensor all, Tensor first) const {
  run.exchange(
      [&](Stream& on) { run.mesh.comm(kExpertShareAxes).all_gather(all, first.rows(0, experts_ + 1), on); });
  if (run.stream.mode() == Stream::Mode::Dry) return;
  if (counts.data != all.data) run.ops.copy(run.stream, counts, all);
  run.stream.synchronize();
}

int64_t ExchangedRows::rounds(Run& run, Tensor counts) const {
  return RowCounts(*this, run, counts).rounds();
}

int64_t ExchangedRows::received_rows(Run& run, Tensor counts, int64_t tokens, int64_t round) const {
  const RowCounts row_counts(*this, run, counts);
  if (!row_counts.known()) return received_limit(run, tokens);
  int64_t rows = 0;
  for (int from = 0; from < ranks_; ++from) {
    const Piece piece = row_counts.piece(from, rank_, round);
    rows += piece.end - piece.begin;
  }
  return rows;
}

void ExchangedRows::find_experts(Run& run, Tensor expert, Tensor counts, Tensor all, int64_t round) const {
  const RowCounts row_counts(*this, run, counts);
  if (!row_counts.known()) return;
  run.ops.experts_of_ranks(run.stream, expert, all, expert_coord(rank_) * local_experts_, local_experts_,
                           round * row_counts.limit());
}

namespace {

// Calls body(to, own, packed, count) for each rank `to` that `rank` sends rows to in a round: `count` rows
// from `own` on of its own rows, which are rows from `packed` on of all rows that it sends.
template <class Counts, class Body>
void for_each_run(const Counts& row_counts, int ranks, int rank, int64_t round, Body body) {
  int64_t packed = 0;
  for (int to = 0; to < ranks; ++to) {
    const auto piece = row_counts.piece(rank, to, round);
    const int64_t count = piece.end - piece.begin;
    if (count > 0) body(to, row_counts.before(rank, to) + piece.begin, packed, count);
    packed += count;
  }
}

}  // namespace

ExchangedRows::Round ExchangedRows::round_of(Run& run, const RowCounts& row_counts, const Tensor& own,
                                             int64_t number) const {
  Round result;
  result.number = number;
  int64_t all = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Piece sent = row_counts.piece(rank_, rank, number),
                received = row_counts.piece(rank, rank_, number);
    result.sent.push_back(sent.end - sent.begin);
    result.received.push_back(received.end - received.begin);
    all += result.sent.back();
  }
  if (!row_counts.known()) {
    result.is_packed = parts_ > 1 || may_need_rounds(run, own.dim(0) / choices_);
    result.rows = result.is_packed ? run.scratch.take(own.dtype, {parts_ * own.dim(0), own.dim(1)}) : own;
    return result;
  }
  result.is_packed = parts_ > 1 || all < row_counts.all(rank_);
  result.rows = result.is_packed ? run.scratch.take(own.dtype, {all, own.dim(1)}) : own.rows(0, all);
  return result;
}

void ExchangedRows::dispatch(Run& run, Tensor received, Tensor own, Tensor counts, int64_t round,
                             Stream& on) const {
  const RowCounts row_counts(*this, run, counts);
  const Round part = round_of(run, row_counts, own, round);
  if (part.is_packed)
    for_each_run(row_counts, ranks_, rank_, round, [&](int, int64_t from, int64_t to, int64_t count) {
      run.ops.copy(run.stream, part.rows.rows(to, to + count), own.rows(from, from + count));
    });
  run.mesh.comm(kExpertShareAxes)
      .all_to_all(received, part.rows, part.received, part.sent, run.after_computing(on));
}

ExchangedRows::PendingCombine ExchangedRows::start_combine(Run& run, Tensor own, Tensor results,
                                                           Tensor counts, int64_t round) const {
  const Round part = round_of(run, RowCounts(*this, run, counts), own, round);
  Stream& on = run.after_computing(run.exchanges());
  run.mesh.comm(kExpertShareAxes).all_to_all(part.rows, results, part.sent, part.received, on);
  return {part, run.end_of(on)};
}

void ExchangedRows::finish_combine(Run& run, Tensor own, Tensor counts, const PendingCombine& pending) const {
  const Round& round = pending.round;
  run.stream.wait(pending.arrived);
  if (!round.is_packed) return;
  const RowCounts row_counts(*this, run, counts);
  for_each_run(row_counts, ranks_, rank_, round.number,
               [&](int rank, int64_t to, int64_t from, int64_t count) {
                 const Tensor sum = own.rows(to, to + count), term = round.rows.rows(from, from + count);
                 if (rank % parts_ == 0)
                   run.ops.copy(run.stream, sum, term);
                 else
                   run.ops.add(run.stream, sum, sum, term);
               });
}

void ExchangedRows::combine(Run& run, Tensor own, Tensor results, Tensor counts, int64_t round) const {
  const Arena::Mark mark = run.scratch.mark();
  finish_combine(run, own, counts, start_combine(run, own, results, counts, round));
  run.scratch.release(mark);
}

Tensor ExchangedRows::gather(Run& run, Tensor x, Stream& on) const {
  const Tensor all = run.scratch.take(x.dtype, {ranks_ * x.row_count(), x.last_dim()});
  run.mesh.comm(kExpertShareAxes).all_gather(all, x, run.after_computing(on));
  return all;
}

void ExchangedRows::select(Run& run, Tensor received, Tensor gathered, Tensor tokens, Tensor counts,
                           int64_t round) const {
  if (!gathers()) return;
  const RowCounts row_counts(*this, run, counts);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor source = run.scratch.take(DType::I32, {received.row_count()});
  if (row_counts.known()) {
    SmallList<Piece, 8> pieces;  // the own rows of each rank that this one receives
    for (int from = 0; from < ranks_; ++from) {
      const Piece piece = row_counts.piece(from, rank_, round);
      const int64_t before = row_counts.before(from, rank_);
      pieces.push_back({before + piece.begin, before + piece.end});
    }
    run.stream.run([ranks = ranks_, source, tokens, tokens_per_rank = gathered.row_count() / ranks_,
                    pieces = std::move(pieces)] {
      auto* to = source.as<int32_t>();
      for (int from = 0; from < ranks; ++from) {
        const Piece piece = pieces[static_cast<size_t>(from)];
        const int32_t* token = tokens.as<int32_t>() + from * tokens.dim(1);
        for (int64_t row = piece.begin; row < piece.end; ++row)
          *to++ = static_cast<int32_t>(from * tokens_per_rank) + token[row];
      }
    });
  }
  run.ops.embedding(run.stream, received, gathered, source, 0, false);
  run.scratch.release(mark);
}

}  // namespace trifold
