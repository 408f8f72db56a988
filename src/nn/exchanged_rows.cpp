#include "nn/exchanged_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trifold {

// The counts of all ranks, read by the host. On a Dry stream they are unknown, and all are 0; in a walk that counts work
// they are as planned: every rank has as many rows as the others, this one gets WorkLog::load times its part, and the
// others share the rest evenly.
class ExchangedRows::Counted {
 public:
  Counted(const ExchangedRows& own, Run& run, const Tensor& counts)
      : ranks_(own.ranks_), places_(own.ranks_ / own.cut_), cut_(own.cut_) {
    const WorkLog* log = run.stream.log();
    known_ = log != nullptr || run.stream.mode() != Stream::Mode::Dry;
    if (!known_) return;
    planned_ = log != nullptr;
    if (planned_) {
      add_planned(own, run, log->load());
      most_ = own.most_of(run, before_.back());
      return;
    }
    int64_t most_own = 0;
    for (int from = 0; from < ranks_; ++from) {
      const int32_t* of_rank = counts.as<int32_t>() + from * (own.experts_ + 1);
      for (int place = 0; place <= places_; ++place) before_.push_back(of_rank[place * own.here_]);
      most_own = std::max(most_own, before_.back());
    }
    for (int from = 0; from < ranks_; ++from)
      for (int to = 0; to < ranks_; ++to)
        arriving_.push_back(from == 0 ? 0 : arrived_before(from - 1, to) + rows(from - 1, to));
    most_ = own.most_of(run, most_own);
  }

  bool known() const { return known_; }
  // Rows that one rank has for another, and for the experts before those of that one; all that it has.
  int64_t rows(int from, int to) const { return before_place(from, to / cut_ + 1) - before(from, to); }
  int64_t before(int from, int to) const { return before_place(from, to / cut_); }
  int64_t all(int from) const { return before_place(from, places_); }
  // Rows that arrive on a rank in a round, at most.
  int64_t most() const { return most_; }
  int64_t rounds() const {
    int64_t most = 1;
    for (int to = 0; to < ranks_; ++to) {
      const int64_t arriving = arrived_before(ranks_ - 1, to) + rows(ranks_ - 1, to);
      most = std::max(most, (arriving + most_ - 1) / most_);
    }
    return most;
  }
  // Of what one rank has for another, what is sent in a round: what arrives from the ranks before it comes first.
  Piece piece(int from, int to, int64_t round) const {
    const int64_t begin = arrived_before(from, to);
    const int64_t count = rows(from, to);
    const auto inside = [&](int64_t place) { return std::clamp<int64_t>(place - begin, 0, count); };
    return {inside(round * most_), inside((round + 1) * most_)};
  }

  static constexpr int64_t kAll = int64_t{1} << 40;  // more than there are rows

 private:
  using Sums = SmallList<int64_t, 72>;  // of up to 8 ranks without allocating

  // One row of `before_` for all ranks.
  void add_planned(const ExchangedRows& own, const Run& run, double load) {
    const int64_t all = run.batch->tokens.elements() / run.mesh.size(Axis::Tp) * own.choices_;
    const int here = own.rank_ / cut_;
    const double mine = std::min(load / places_, 1.0) * static_cast<double>(all);
    const double each = places_ > 1 ? (static_cast<double>(all) - mine) / (places_ - 1) : 0;
    for (int place = 0; place <= places_; ++place)
      before_.push_back(place > here ? std::llround((place - 1) * each + mine) : std::llround(place * each));
  }

  int64_t before_place(int from, int place) const {
    if (!known_) return 0;
    return before_[static_cast<size_t>((planned_ ? 0 : from * (places_ + 1)) + place)];
  }
  // Rows that the ranks before `from` have for another.
  int64_t arrived_before(int from, int to) const {
    if (!known_) return 0;
    return planned_ ? from * rows(from, to) : arriving_[static_cast<size_t>(from * ranks_ + to)];
  }

  int ranks_, places_, cut_;
  bool known_, planned_ = false;
  Sums before_;    // [from, place], and one more of each: all rows of a rank; as planned, of one rank for all
  Sums arriving_;  // [from, to], unless planned
  int64_t most_ = kAll;  // rows that arrive on a rank in a round
};

ExchangedRows::ExchangedRows(const Mesh& mesh, const std::string& name, int64_t experts, int64_t choices,
                             double factor, const ExpertCapacity& capacity, TokenDispatcher dispatch)
    : ranks_(mesh.sizes().ranks(kExpertShareAxes)),
      rank_(place_along(kExpertShareAxes, mesh.coords(), mesh.sizes())),
      cut_(mesh.size(Axis::Etp)),
      experts_(experts),
      here_(experts / mesh.size(Axis::Ep)),
      choices_(choices),
      factor_(factor),
      capacity_(capacity),
      dispatch_(dispatch) {
  check(experts % mesh.size(Axis::Ep) == 0, "{}: {} experts cannot be cut over {} expert-parallel ranks",
        name, experts, mesh.size(Axis::Ep));
}

int64_t ExchangedRows::most_of(const Run& run, int64_t own_rows) const {
  int64_t most = Counted::kAll;
  if (factor_ > 0)
    most =
        std::max<int64_t>(1, static_cast<int64_t>(std::ceil(factor_ * cut_ * static_cast<double>(own_rows))));
  if (capacity_.factor == 0) return most;
  // A rank has at most as many of them as it has tokens of the sequence.
  const int64_t of_expert =
      std::min(run.batch->seq_length(),
               expert_capacity(capacity_.factor, run.batch->held_rows().length(), choices_, experts_));
  return std::min(most, ranks_ * run.batch->samples() * of_expert * here_);
}

int64_t ExchangedRows::worst_rows(int64_t tokens) const {
  return ranks_ * tokens * std::min(choices_, here_);
}

int64_t ExchangedRows::most_rows(const Run& run, int64_t tokens) const {
  return std::min(worst_rows(tokens), most_of(run, tokens * choices_));
}

void ExchangedRows::exchange_counts(Run& run, Tensor counts, Tensor all, Tensor first) const {
  run.exchange(
      [&](Stream& on) { run.mesh.comm(kExpertShareAxes).all_gather(all, first.rows(0, experts_ + 1), on); });
  if (run.stream.mode() == Stream::Mode::Dry) return;
  if (counts.data != all.data) run.ops.copy(run.stream, counts, all);
  run.stream.synchronize();
}

int64_t ExchangedRows::rounds(Run& run, Tensor counts) const { return Counted(*this, run, counts).rounds(); }

int64_t ExchangedRows::rows_arriving(Run& run, Tensor counts, int64_t tokens, int64_t round) const {
  const Counted counted(*this, run, counts);
  if (!counted.known()) return most_rows(run, tokens);
  int64_t rows = 0;
  for (int from = 0; from < ranks_; ++from) {
    const Piece piece = counted.piece(from, rank_, round);
    rows += piece.end - piece.begin;
  }
  return rows;
}

void ExchangedRows::find_experts(Run& run, Tensor expert, Tensor counts, Tensor all, int64_t round) const {
  const Counted counted(*this, run, counts);
  if (!counted.known()) return;
  run.ops.experts_of_ranks(run.stream, expert, all, place_of(rank_) * here_, here_, round * counted.most());
}

namespace {

// Calls body(to, of_all, packed, count) for runs of rows of one rank.
template <class Counted, class Body>
void for_each_run(const Counted& counted, int ranks, int rank, int64_t round, Body body) {
  int64_t packed = 0;
  for (int to = 0; to < ranks; ++to) {
    const auto piece = counted.piece(rank, to, round);
    const int64_t count = piece.end - piece.begin;
    if (count > 0) body(to, counted.before(rank, to) + piece.begin, packed, count);
    packed += count;
  }
}

}  // namespace

ExchangedRows::Round ExchangedRows::round_of(Run& run, const Counted& counted, const Tensor& own,
                                             int64_t round) const {
  Round result;
  result.number = round;
  int64_t all = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Piece here = counted.piece(rank_, rank, round), there = counted.piece(rank, rank_, round);
    result.here.push_back(here.end - here.begin);
    result.there.push_back(there.end - there.begin);
    all += result.here.back();
  }
  if (!counted.known()) {
    result.is_packed = cut_ > 1 || may_need_rounds(run, own.dim(0) / choices_);
    result.rows = result.is_packed ? run.scratch.take(own.dtype, {cut_ * own.dim(0), own.dim(1)}) : own;
    return result;
  }
  result.is_packed = cut_ > 1 || all < counted.all(rank_);
  result.rows = result.is_packed ? run.scratch.take(own.dtype, {all, own.dim(1)}) : own.rows(0, all);
  return result;
}

void ExchangedRows::send(Run& run, Tensor arrived, Tensor own, Tensor counts, int64_t round,
                         Stream& on) const {
  const Counted counted(*this, run, counts);
  const Round part = round_of(run, counted, own, round);
  if (part.is_packed)
    for_each_run(counted, ranks_, rank_, round, [&](int, int64_t from, int64_t to, int64_t count) {
      run.ops.copy(run.stream, part.rows.rows(to, to + count), own.rows(from, from + count));
    });
  run.mesh.comm(kExpertShareAxes)
      .all_to_all(arrived, part.rows, part.there, part.here, run.after_computing(on));
}

ExchangedRows::Returning ExchangedRows::start_back(Run& run, Tensor own, Tensor arrived, Tensor counts,
                                                   int64_t round) const {
  const Round part = round_of(run, Counted(*this, run, counts), own, round);
  Stream& on = run.after_computing(run.exchanges());
  run.mesh.comm(kExpertShareAxes).all_to_all(part.rows, arrived, part.here, part.there, on);
  return {part, run.end_of(on)};
}

void ExchangedRows::end_back(Run& run, Tensor own, Tensor counts, const Returning& returning) const {
  const Round& part = returning.round;
  run.stream.wait(returning.arrive);
  if (!part.is_packed) return;
  const Counted counted(*this, run, counts);
  for_each_run(counted, ranks_, rank_, part.number, [&](int rank, int64_t to, int64_t from, int64_t count) {
    const Tensor sum = own.rows(to, to + count), made = part.rows.rows(from, from + count);
    if (rank % cut_ == 0)
      run.ops.copy(run.stream, sum, made);
    else
      run.ops.add(run.stream, sum, sum, made);
  });
}

void ExchangedRows::send_back(Run& run, Tensor own, Tensor arrived, Tensor counts, int64_t round) const {
  const Arena::Mark mark = run.scratch.mark();
  end_back(run, own, counts, start_back(run, own, arrived, counts, round));
  run.scratch.release(mark);
}

Tensor ExchangedRows::gather(Run& run, Tensor x, Stream& on) const {
  const Tensor all = run.scratch.take(x.dtype, {ranks_ * x.row_count(), x.last_dim()});
  run.mesh.comm(kExpertShareAxes).all_gather(all, x, run.after_computing(on));
  return all;
}

void ExchangedRows::pick(Run& run, Tensor arrived, Tensor gathered, Tensor tokens, Tensor counts,
                         int64_t round) const {
  if (!gathers()) return;
  const Counted counted(*this, run, counts);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor place = run.scratch.take(DType::I32, {arrived.row_count()});
  if (counted.known()) {
    SmallList<Piece, 8> pieces;  // of the sorted rows of each rank
    for (int from = 0; from < ranks_; ++from) {
      const Piece piece = counted.piece(from, rank_, round);
      const int64_t before = counted.before(from, rank_);
      pieces.push_back({before + piece.begin, before + piece.end});
    }
    run.stream.run(
        [ranks = ranks_, place, tokens, each = gathered.row_count() / ranks_, pieces = std::move(pieces)] {
          auto* to = place.as<int32_t>();
          for (int from = 0; from < ranks; ++from) {
            const Piece piece = pieces[static_cast<size_t>(from)];
            const int32_t* token = tokens.as<int32_t>() + from * tokens.dim(1);
            for (int64_t row = piece.begin; row < piece.end; ++row)
              *to++ = static_cast<int32_t>(from * each) + token[row];
          }
        });
  }
  run.ops.embedding(run.stream, arrived, gathered, place, 0, false);
  run.scratch.release(mark);
}

}  // namespace trifold
