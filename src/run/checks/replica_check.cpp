#include "run/checks/replica_check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "checkpoint/collective.h"
#include "core/not_finite.h"
#include "files/crc32.h"
#include "ops/host_copy.h"
#include "run/checks/finite_check.h"
#include "run/rank_text.h"

namespace trifold {

namespace {

// A bijection that spreads every bit (Steele et al., "SplitMix", OOPSLA 2014).
uint64_t spread(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

uint64_t key_of(std::string_view name, uint64_t piece) {
  return spread((uint64_t{crc32_of(0, name.data(), name.size())} << 32) ^ piece);
}

// The sums of the halves of hashes, each modulo 2^32, without a carry between them.
uint64_t add_halves(uint64_t a, uint64_t b) {
  const uint32_t low = static_cast<uint32_t>(a) + static_cast<uint32_t>(b);
  const uint32_t high = static_cast<uint32_t>(a >> 32) + static_cast<uint32_t>(b >> 32);
  return (uint64_t{high} << 32) | low;
}

// A range of the values in host memory.
class Window {
 public:
  Window(const HeldCopy& copy, int64_t from, int64_t to, const OpTable& ops, Stream& stream) {
    if (copy.stored == nullptr) {
      there_.emplace(ops, stream, copy.values.flat(from, to));
      values_ = there_->tensor();
      return;
    }
    memory_ = Buffer(static_cast<size_t>(to - from) * size_of(copy.values.dtype));
    values_ = memory_.tensor(copy.values.dtype, {to - from});
    copy.stored->read(from, to - from, memory_.data());
  }
  const Tensor& tensor() const { return values_; }

 private:
  std::optional<HostCopy> there_;
  Buffer memory_;
  Tensor values_;
};

// The hash of a piece is the sum (by halves) of the hashes of its chunks of kGrain elements, each mixed with its
// position in the rank's box: the hash of a box is the sum over its pieces, however it is cut.
uint64_t hash_of(const HeldCopy& copy, const OpTable& ops, Stream& stream) {
  constexpr int64_t kWindow = int64_t{1} << 24;  // elements copied from a device at a time
  const int64_t count = copy.values.elements();
  const size_t size = size_of(copy.values.dtype);
  std::atomic<uint32_t> low{0}, high{0};
  for (int64_t from = 0; from < count; from += kWindow) {
    const Window here(copy, from, std::min(count, from + kWindow), ops, stream);
    const auto* bytes = static_cast<const std::byte*>(here.tensor().data);
    const int64_t elements = here.tensor().elements();
    const int64_t chunk = (copy.first + from) / kGrain;
    stream.pool().parallel_for((elements + kGrain - 1) / kGrain, 64, [&](int64_t begin, int64_t end) {
      uint64_t mine = 0;
      for (int64_t i = begin; i < end; ++i) {
        const auto length = static_cast<size_t>(std::min(kGrain, elements - i * kGrain)) * size;
        const uint32_t crc = crc32_of(0, bytes + static_cast<size_t>(i * kGrain) * size, length);
        mine = add_halves(mine, spread((static_cast<uint64_t>(chunk + i) << 32) ^ crc));
      }
      low += static_cast<uint32_t>(mine);
      high += static_cast<uint32_t>(mine >> 32);
    });
  }
  return (uint64_t{high} << 32) | low;
}

// A sum over all ranks that is 0 if copies agree. The first copy of a piece adds its hash once for each other copy, and
// every other copy subtracts its own; one use of a tied weight adds its hash, the other subtracts. Pieces are spread
// over buckets, so that names are exchanged only for the buckets that are not 0. The halves of a hash are summed
// separately modulo 2^32, in 64 bits, so no sum overflows.
class Balance {
 public:
  static constexpr size_t kBuckets = 256;
  static size_t bucket(uint64_t key) { return key % kBuckets; }

  void add(uint64_t key, uint64_t factor, uint64_t hash) {
    for (size_t half = 0; half < 2; ++half) {
      int64_t& sum = sums_[2 * bucket(key) + half];
      const auto part = static_cast<uint32_t>(hash >> (32 * half));
      sum = static_cast<uint32_t>(static_cast<uint64_t>(sum) + factor * part);
    }
  }
  void sum_over(Communicator& world, Stream& stream) {
    world.all_reduce({sums_.data(), DType::I64, {static_cast<int64_t>(sums_.size())}}, Reduce::Sum, stream);
  }
  bool holds(size_t bucket) const {
    return static_cast<uint32_t>(sums_[2 * bucket]) == 0 && static_cast<uint32_t>(sums_[2 * bucket + 1]) == 0;
  }
  bool holds() const {
    for (size_t bucket = 0; bucket < kBuckets; ++bucket)
      if (!holds(bucket)) return false;
    return true;
  }

 private:
  std::array<int64_t, 2 * kBuckets> sums_{};
};

constexpr uint64_t kMinusOne = ~uint64_t{0};

uint64_t tie_key(const HeldCopy& copy) { return key_of("tied " + copy.tied, 0); }

// ---- ranks that differ ----

// A rank's description of a copy in a bucket that is not 0: a line "hash key use bad name", where `use` is 0 for a
// copy, and 1 or 2 for a use of a tied weight, whose hashes are added up. `bad` is "-", or the index and value of the
// first element that is not finite ("17=nan").
struct Voice {
  int rank = 0;
  uint64_t hash = 0;
};
struct Votes {
  std::string name;
  std::string not_finite;  // " (element 17 on rank 3 is nan)", of the first rank that has one
  std::vector<Voice> copies;
  std::array<std::vector<Voice>, 2> uses;
};

std::string bad_element(const HeldCopy& copy, const OpTable& ops, Stream& stream) {
  const Window here(copy, 0, copy.values.elements(), ops, stream);
  const Tensor values = here.tensor();
  const auto bad = first_not_finite(values.data, values.dtype, values.elements());
  return bad ? fmt::format("{}={}", copy.first + bad->index, bad->what) : "-";
}

std::string lines_of(const std::vector<HeldCopy>& held, const std::vector<uint64_t>& hashes,
                     const Balance& balance, const OpTable& ops, Stream& stream) {
  std::string lines;
  for (size_t i = 0; i < held.size(); ++i) {
    const HeldCopy& copy = held[i];
    const uint64_t key = key_of(copy.name, copy.piece);
    if (copy.copies > 1 && !balance.holds(Balance::bucket(key)))
      lines += fmt::format("{} {} 0 {} {}\n", hashes[i], key, bad_element(copy, ops, stream), copy.name);
    if (!copy.tied.empty() && copy.is_first && !balance.holds(Balance::bucket(tie_key(copy))))
      lines += fmt::format("{} {} {} {} {}\n", hashes[i], tie_key(copy), copy.is_use ? 2 : 1,
                           bad_element(copy, ops, stream), copy.tied);
  }
  return lines;
}

std::map<uint64_t, Votes> votes_of(const std::vector<std::string>& texts) {
  std::map<uint64_t, Votes> votes;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    Voice voice{static_cast<int>(rank), 0};
    uint64_t key = 0;
    size_t use = 0;
    for (std::string bad, name;
         lines >> voice.hash >> key >> use >> bad && std::getline(lines >> std::ws, name);) {
      Votes& of = votes[key];
      of.name = name;
      if (const size_t sign = bad.find('='); sign != std::string::npos && of.not_finite.empty())
        of.not_finite =
            fmt::format(" (element {} on rank {} is {})", bad.substr(0, sign), rank, bad.substr(sign + 1));
      (use == 0 ? of.copies : of.uses.at(use - 1)).push_back(voice);
    }
  }
  return votes;
}

// "rank 3 differs from ranks 1, 5, 7", or empty.
std::string disagreement(const std::vector<Voice>& copies) {
  std::map<uint64_t, std::vector<int>> holders;
  for (const Voice& voice : copies) holders[voice.hash].push_back(voice.rank);
  if (holders.size() < 2) return {};
  const auto most = std::max_element(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  if (2 * most->second.size() > copies.size()) {
    std::vector<int> others;
    for (const auto& [hash, ranks] : holders)
      if (hash != most->first) others.insert(others.end(), ranks.begin(), ranks.end());
    std::sort(others.begin(), others.end());
    return fmt::format("{} {} from {}", ranks_text(others), others.size() == 1 ? "differs" : "differ",
                       ranks_text(most->second));
  }
  std::vector<std::vector<int>> groups;
  for (const auto& [hash, ranks] : holders) groups.push_back(ranks);
  std::sort(groups.begin(), groups.end());
  std::vector<std::string> texts;
  texts.reserve(groups.size());
  for (const std::vector<int>& group : groups) texts.push_back(ranks_text(group));
  return fmt::format("{} differ, and there is no majority", fmt::join(texts, " and "));
}

// Compares the two uses of a tied weight.
std::string disagreement(const std::array<std::vector<Voice>, 2>& uses) {
  std::array<uint64_t, 2> sums{};
  std::array<std::vector<int>, 2> ranks;
  for (size_t use = 0; use < 2; ++use)
    for (const Voice& voice : uses[use]) {
      sums[use] = add_halves(sums[use], voice.hash);
      ranks[use].push_back(voice.rank);
    }
  if (sums[0] == sums[1]) return {};
  return fmt::format("the two uses of a tied weight, on {} and on {}, differ", ranks_text(ranks[0]),
                     ranks_text(ranks[1]));
}

std::string verdict(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<std::string>> names;  // by kind of disagreement
  for (const auto& [key, votes] : votes_of(texts))
    for (const std::string& wrong : {disagreement(votes.copies), disagreement(votes.uses)})
      if (!wrong.empty()) names[wrong].push_back(votes.name + votes.not_finite);
  std::vector<std::string> parts;
  for (auto& [wrong, tensors] : names) {
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    constexpr size_t kNamed = 8;
    const size_t more = tensors.size() - std::min(tensors.size(), kNamed);
    const std::string list =
        fmt::format("{}", fmt::join(tensors.begin(), tensors.end() - static_cast<long>(more), ", "));
    parts.push_back(fmt::format("{}: {}{}", wrong, list, more == 0 ? "" : fmt::format(" and {} more", more)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

uint64_t piece_key(const Rect& rect, int64_t first, int64_t count) {
  uint64_t piece = 0;
  const auto add = [&](int64_t number) { piece = spread(piece ^ static_cast<uint64_t>(number)); };
  for (int dim = 0; dim < rect.extent.rank(); ++dim) {
    add(rect.offset[dim]);
    add(rect.extent[dim]);
  }
  add(first);
  add(count);
  return piece;
}

void compare_copies(Communicator& world, const OpTable& ops, Stream& stream,
                    const std::vector<HeldCopy>& held, const std::string& when) {
  if (world.size() == 1) return;
  Balance balance;
  std::vector<uint64_t> hashes;
  for (const HeldCopy& copy : held) {
    const uint64_t hash = hashes.emplace_back(hash_of(copy, ops, stream));
    if (copy.copies > 1)
      balance.add(key_of(copy.name, copy.piece),
                  copy.is_first ? static_cast<uint64_t>(copy.copies - 1) : kMinusOne, hash);
    if (!copy.tied.empty() && copy.is_first) balance.add(tie_key(copy), copy.is_use ? kMinusOne : 1, hash);
  }
  Stream host = stream.host();
  balance.sum_over(world, host);
  if (balance.holds()) return;
  const std::string found = verdict(gather_texts(
      world, "finding the copies that differ", [&] { return lines_of(held, hashes, balance, ops, stream); }));
  throw Error(
      fmt::format(
          "{}: replicas of tensors on several ranks differ: {}. The memory or arithmetic of a host has "
          "failed, or ranks use different kernels; nothing of this step was "
          "saved (--check-replicas 0 turns the comparison off)",
          when, found),
      ErrorKind::Agreed);
}

// ---- the copies of a model's parameters ----

namespace {

// Whether a second use of the parameter is on another rank.
bool used_elsewhere(const ParamList& params, ParamId id) {
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].tied_to == id && !params.held({i})) return true;
  return false;
}

class Collector {
 public:
  Collector(const Mesh& mesh, const ParamList& params)
      : mesh_(mesh), params_(params), compares_uses_(mesh.world().sums_in_rank_order()) {}

  // `slices`: the number of ranks over which the values are sharded.
  void add(std::string_view kind, const FlatLayout::Segment& segment, int slices, Tensor values) {
    const ParamSpec& param = params_[segment.id];
    HeldCopy copy;
    copy.name = fmt::format("{}/{}", kind, param.shard.name);
    copy.piece = piece_key(param.shard.local, segment.first, segment.count);
    copy.first = segment.first;
    copy.copies = copies_of(param.shard, mesh_.sizes(), slices);
    copy.is_first = counts_here(param.shard, mesh_.coords(), mesh_.sizes(), slices);
    copy.values = values;
    tie(copy, kind, segment.id);
    if (copy.copies > 1 || !copy.tied.empty()) held_.push_back(std::move(copy));
  }
  std::vector<HeldCopy> take() { return std::move(held_); }

 private:
  // The gradients of the two uses are added once, and each use then sums its own over the data axis. The sums are equal
  // if a back end adds in the order of the ranks; otherwise the order may depend on the elements' addresses, which
  // differ.
  void tie(HeldCopy& copy, std::string_view kind, ParamId id) const {
    copy.is_use = params_[id].tied_to.has_value();
    if (!compares_uses_ || (!copy.is_use && !used_elsewhere(params_, id))) return;
    const ShardSpec& original = params_[params_[id].tied_to.value_or(id)].shard;
    // Including its place: every tensor rank holds another part.
    copy.tied = fmt::format("{}/{}", kind, original.name);
    if (original.local.elements() != original.global.elements())
      copy.tied += fmt::format(" from row {} on", original.local.offset[0]);
  }

  const Mesh& mesh_;
  const ParamList& params_;
  bool compares_uses_;
  std::vector<HeldCopy> held_;
};

}  // namespace

std::vector<HeldCopy> held_copies(const Mesh& mesh, const FlatLayout& layout, ParamStore& weights,
                                  const ShardedOptimizer& optimizer, const GradientBuffer& grads,
                                  Stream& stream) {
  weights.finish(stream);
  Collector found(mesh, layout.params());
  const bool masters = accumulate_type(weights.dtype()) != weights.dtype();
  // Whole weights, which include the pieces that this rank owns unless these are masters of rounded weights.
  if (!weights.sharded())
    for (const FlatLayout::Unit& unit : layout.units())
      for (const FlatLayout::Segment& whole : layout.segments(unit, std::nullopt))
        found.add(masters ? "rounded" : "param", whole, 1, weights.weight(whole.id));
  for (const ShardedOptimizer::Piece& piece : optimizer.pieces())
    if (piece.kind != "param" || masters || weights.sharded())
      found.add(piece.kind, piece.segment, grads.slices(piece.segment.id), piece.values);
  if (weights.sharded())
    for (const FlatLayout::Segment& segment : optimizer.quantized())
      found.add("quantized", segment, grads.slices(segment.id), weights.owned(segment));
  return found.take();
}

}  // namespace trifold
