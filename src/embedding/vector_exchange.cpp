#include "embedding/vector_exchange.h"

#include <numeric>

namespace trifold {

namespace {

// The elements that a rank looks up for all samples, and the elements that it receives for its own samples.
struct Counts {
  int64_t made = 0, received = 0;
};

Counts counts_of(const Placement& placement, int rank, int64_t samples) {
  Counts counts{samples * placement.ranks() * placement.columns(rank), 0};
  for (int source = 0; source < placement.ranks(); ++source)
    counts.received += samples * placement.columns(source);
  return counts;
}

}  // namespace

size_t VectorExchange::bytes(const Placement& placement, int rank, const Options& options) {
  const Counts counts = counts_of(placement, rank, options.samples);
  return static_cast<size_t>(counts.made + counts.received) *
         (size_of(options.dtype) + (options.bf16 ? size_of(DType::BF16) : 0));
}

VectorExchange::VectorExchange(const Placement& placement, Communicator& comm, const OpTable& ops,
                               const Options& options, Stream& compute, Stream& comm_stream)
    : comm_(comm),
      ops_(ops),
      options_(options),
      compute_(compute),
      comm_stream_(comm_stream),
      ranks_(placement.ranks()),
      columns_(placement.columns(comm.rank())) {
  check(!options.bf16 || options.dtype == DType::F32, "an exchange in bf16 is of f32 vectors");
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    made_counts_.push_back(options.samples * columns_);
    received_counts_.push_back(options.samples * placement.columns(rank));
    unpack_.emplace_back();
    pack_.emplace_back();
    for (const Shard& shard : placement.shards_of(rank)) {
      const int64_t column = placement.feature_column(shard.table) + shard.rect.offset[1];
      const int64_t columns = shard.rect.extent[1];
      unpack_.back().push_back({column, shard.column, columns, !placement.first_of_rows(shard), {}});
      pack_.back().push_back({shard.column, column, columns, false, {}});
    }
  }
  const Counts counts = counts_of(placement, comm.rank(), options.samples);
  made_numbers_ = counts.made;
  received_numbers_ = counts.received;
  const auto room = [&](int64_t numbers, DType dtype) {
    return Buffer(static_cast<size_t>(numbers) * size_of(dtype), ops.device);
  };
  made_ = room(made_numbers_, options.dtype);
  received_ = room(received_numbers_, options.dtype);
  if (!options.bf16) return;
  made_short_ = room(made_numbers_, DType::BF16);
  received_short_ = room(received_numbers_, DType::BF16);
}

size_t VectorExchange::bytes() const {
  return made_.bytes() + received_.bytes() + made_short_.bytes() + received_short_.bytes();
}

Tensor VectorExchange::made() const {
  return made_.tensor(options_.dtype, {options_.samples * ranks_, columns_});
}

// The block received from, or sent to, a rank: [b, W_rank].
Tensor VectorExchange::block(int64_t at, size_t rank) const {
  const int64_t count = received_counts_[rank];
  return flat(received_, received_numbers_)
      .flat(at, at + count)
      .reshape({options_.samples, count / options_.samples});
}

void VectorExchange::mark(StepPart part, bool begins) {
  if (options_.marks) comm_stream_.run([this, part, begins] { options_.marks(part, begins); });
}

// `out` and `in` are flat. They may be sent as bf16.
void VectorExchange::send(Tensor out, Tensor in, Buffer& out_short, Buffer& in_short, StepPart part) {
  const bool forward = part == StepPart::Vectors;
  const std::vector<int64_t>& from = forward ? received_counts_ : made_counts_;
  const std::vector<int64_t>& to = forward ? made_counts_ : received_counts_;
  if (options_.bf16) {
    const Tensor narrow = in_short.tensor(DType::BF16, in.shape);
    ops_.convert(compute_, narrow, in);
    in = narrow;
    out = out_short.tensor(DType::BF16, out.shape);
  }
  comm_stream_.wait(compute_.record());
  mark(part, true);
  comm_.all_to_all(out, in, from, to, comm_stream_);
  mark(part, false);
  arrived_ = comm_stream_.record();
}

// Waits for the last exchange.
void VectorExchange::widen(Tensor out, const Buffer& from) {
  compute_.wait(arrived_);
  if (options_.bf16) ops_.convert(compute_, out, from.tensor(DType::BF16, out.shape));
}

void VectorExchange::send_vectors() {
  send(flat(received_, received_numbers_), flat(made_, made_numbers_), received_short_, made_short_,
       StepPart::Vectors);
}

void VectorExchange::receive_vectors(Tensor features) {
  widen(flat(received_, received_numbers_), received_short_);
  int64_t at = 0;
  for (size_t rank = 0; rank < unpack_.size(); at += received_counts_[rank++])
    if (!unpack_[rank].empty()) ops_.copy_columns(compute_, features, block(at, rank), unpack_[rank]);
}

void VectorExchange::send_gradients(Tensor dfeatures) {
  int64_t at = 0;
  for (size_t rank = 0; rank < pack_.size(); at += received_counts_[rank++])
    if (!pack_[rank].empty()) ops_.copy_columns(compute_, block(at, rank), dfeatures, pack_[rank]);
  send(flat(made_, made_numbers_), flat(received_, received_numbers_), made_short_, received_short_,
       StepPart::Gradients);
}

void VectorExchange::receive_gradients() { widen(flat(made_, made_numbers_), made_short_); }

}  // namespace trifold
