#include "zero/param_store.h"

#include <algorithm>
#include <utility>

namespace trifold {

UnitBuffers buffers_of_units(const FlatLayout& layout, std::span<const std::pair<int, int>> together,
                             DType dtype) {
  std::vector<int64_t> sizes;
  for (const FlatLayout::Unit& unit : layout.units())
    sizes.push_back(static_cast<int64_t>(layout.unit_bytes(unit, dtype)));
  return share_buffers(sizes, together);
}

FlatLayout::Segment part_of(const FlatLayout::Segment& segment, int64_t begin, int64_t end) {
  return {segment.id, segment.first + begin, std::min(end, segment.count) - begin, segment.flat + begin,
          segment.shard + begin};
}

void initialise_segment(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor values,
                        uint64_t seed, const OpTable& ops, Stream& stream) {
  if (ops.device != nullptr) {
    const Buffer host_buffer(values.bytes());
    const Tensor host = host_buffer.tensor(values.dtype, values.shape);
    Stream on_host = stream.host();
    initialise_segment(layout, segment, host, seed, cpu_ops(), on_host);
    ops.copy(stream, values, host);
    return stream.synchronize();
  }
  const ParamList& params = layout.params();
  ParamSpec spec = params[params[segment.id].tied_to.value_or(segment.id)];
  // A model whose weights are frozen is trained: they are read from its files before anything is computed, and random
  // numbers for billions of them would take minutes. The memory has zeros.
  const bool random = spec.init.kind == Init::Kind::Normal || spec.init.kind == Init::Kind::Uniform;
  if (spec.frozen && random) return;
  int64_t done = 0;
  for (const Rect& rect : rects_of_range(spec.shard.local, segment.first, segment.first + segment.count)) {
    spec.shard.local = rect;
    initialise(spec, values.rows(done, done + rect.elements()).reshape(rect.extent), seed, stream.pool());
    done += rect.elements();
  }
}

ParamStore::ParamStore(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops, DType dtype,
                       const Options& options, Stream& comm_stream)
    : layout_(layout),
      groups_(groups),
      ops_(ops),
      dtype_(dtype),
      options_(options),
      comm_stream_(comm_stream),
      arrived_(layout.units().size()) {
  check(options.versions >= 1 && (options.versions == 1 || !options.sharded),
        "a store of {} versions of {} weights: sharded weights have one version, others at least one",
        options.versions, options.sharded ? "sharded" : "whole");
  if (accumulate_type(dtype) != dtype) make_exact();
  if (options.sharded) {
    const size_t bytes = layout.shard_bytes(0, layout.shard_elements(), dtype);
    if (options.offload.empty())
      shards_ = Buffer(bytes, ops.device);
    else
      file_ = FileMemory(options.offload, bytes);
    return;
  }
  frozen_ = Buffer(layout.bytes(layout.trained_elements(), layout.plain_elements(), dtype), ops.device);
  quantized_ = Buffer(layout.bytes(layout.plain_elements(), layout.elements(), dtype), ops.device);
  for (int i = 0; i < options.versions; ++i) make_version();
}

void ParamStore::make_version() {
  auto version = std::make_unique<Version>(*this);
  const int64_t trained = layout_.trained_elements();
  version->buffer = Buffer(static_cast<size_t>(trained) * size_of(dtype_), ops_.device);
  version->flat = version->buffer.tensor(dtype_, {trained});
  version->views =
      layout_.views(version->flat, frozen_.tensor(dtype_, {layout_.plain_elements() - trained}),
                    quantized_.tensor(DType::U8, {layout_.elements() - layout_.plain_elements()}));
  versions_.push_back(std::move(version));
}

Tensor ParamStore::whole(int64_t begin, int64_t end, int version) const {
  const int64_t trained = layout_.trained_elements(), plain = layout_.plain_elements();
  if (begin < trained) return ring(version).flat.rows(begin, end);
  if (begin < plain) return frozen_.tensor(dtype_, {plain - trained}).rows(begin - trained, end - trained);
  return quantized_.tensor(DType::U8, {layout_.elements() - plain}).rows(begin - plain, end - plain);
}

void ParamStore::make_exact() {
  const ParamList& params = layout_.params();
  const DType wide = accumulate_type(dtype_);
  int64_t elements = 0;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].is_buffer) elements += params[{i}].shard.global.elements();
  if (elements == 0) return;
  exact_memory_ = Buffer(static_cast<size_t>(elements) * size_of(wide), ops_.device);
  const Tensor all = exact_memory_.tensor(wide, {elements});
  exact_.resize(static_cast<size_t>(params.size()));
  int64_t begin = 0;
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].is_buffer) continue;
    const Shape& shape = params[{i}].shard.global;
    exact_[static_cast<size_t>(i)] = all.rows(begin, begin + shape.elements()).reshape(shape);
    begin += shape.elements();
  }
}

ParamStore::~ParamStore() {
  try {
    comm_stream_.synchronize();
  } catch (...) {  // rethrown by the next wait for the stream
  }
}

void ParamStore::reserve(const std::vector<std::pair<int, int>>& together) {
  if (!options_.sharded) return;
  together_.insert(together_.end(), together.begin(), together.end());
  UnitBuffers assignment = buffers_of_units(layout_, together_, dtype_);
  if (assignment.of_unit == assignment_.of_unit) return;
  for (const UnitBuffer& buffer : buffers_)
    check(buffer.unit < 0, "memory was rearranged while weights were gathered");
  assignment_ = std::move(assignment);
  buffers_.clear();
  for (const int64_t bytes : assignment_.elements)
    buffers_.push_back({Buffer(static_cast<size_t>(bytes), ops_.device), -1, {}, {}});
}

const ParamStore::Version& ParamStore::ring(int version) const {
  return *versions_[static_cast<size_t>(first_ + version) % versions_.size()];
}

const ParamSource& ParamStore::at_version(int version) const {
  if (!options_.sharded) return ring(version);
  check(version == 0, "sharded weights have no version {}", version);
  return *this;
}

const ParamStore::UnitBuffer& ParamStore::buffer_of(int unit) const {
  return buffers_[static_cast<size_t>(assignment_.of_unit[static_cast<size_t>(unit)])];
}

bool ParamStore::gathered(int unit) const { return !buffers_.empty() && buffer_of(unit).unit == unit; }

Tensor ParamStore::weight(ParamId id) const {
  if (!options_.sharded) {
    if (const int unit = layout_.unit_of(id);
        unit >= 0 && arrived_[static_cast<size_t>(unit)].stream != nullptr)
      comm_stream_.synchronize();
    return ring(0).weight(id);
  }
  const ParamList& params = layout_.params();
  const int unit = layout_.unit_of(id);
  check(gathered(unit), "the weights of {} are not gathered", params[id].shard.name);
  const ParamId stored = params.stored(id) ? id : *params[id].tied_to;
  const FlatLayout::Unit& of_unit = layout_.units()[static_cast<size_t>(unit)];
  const int64_t begin = layout_.offset(stored) - of_unit.begin;
  const int64_t end = begin + params[id].stored_length();
  const Tensor values = buffer_of(unit).memory.tensor(type_of(of_unit), {end}).rows(begin, end);
  return of_unit.quantized ? values : values.reshape(params[id].shard.local.extent);
}

Tensor ParamStore::exact(ParamId id) const {
  if (exact_.empty()) return weight(id);
  return exact_[static_cast<size_t>(id.index)];
}

void ParamStore::unshard(int block, Stream&) {
  const auto [first, end] = layout_.units_ending_at(block);
  for (int unit = first; unit < end; ++unit) {
    check(!gathered(unit), "the weights of the unit of block {} are gathered already", block);
    gather(unit);
  }
}

// A buffer is reused when its last reader is done; the plan gathers early enough to hide both.
void ParamStore::gather(int index) {
  check(!buffers_.empty(), "no memory was reserved for gathered weights");
  UnitBuffer& buffer = buffers_[static_cast<size_t>(assignment_.of_unit[static_cast<size_t>(index)])];
  check(buffer.unit < 0, "the plan gathers two units at once that share memory");
  const FlatLayout::Unit& unit = layout_.units()[static_cast<size_t>(index)];
  const int64_t slice = unit.slice_elements();
  const Tensor own_slice = shard(unit.shard_begin, unit.shard_begin + slice);
  const FlatLayout::Segment all{{}, 0, slice, unit.begin, unit.shard_begin};
  expect(all);
  comm_stream_.wait(buffer.spare);
  comm_stream_.wait(updated_);
  groups_.shard(unit.data).all_gather(buffer.memory.tensor(type_of(unit), {unit.elements()}), own_slice,
                                      comm_stream_);
  if (file_.bytes() > 0) comm_stream_.run([this, all] { release(all); });
  buffer.unit = index;
  buffer.ready = comm_stream_.record();
}

void ParamStore::reshard(int block, Stream& stream) {
  const auto [first, end] = layout_.units_ending_at(block);
  for (int unit = first; unit < end; ++unit) {
    check(gathered(unit), "the weights of the unit of block {} are not gathered", block);
    UnitBuffer& buffer = buffers_[static_cast<size_t>(assignment_.of_unit[static_cast<size_t>(unit)])];
    buffer.unit = -1;
    buffer.spare = stream.record();
  }
}

void ParamStore::enter(int block, Stream& stream) const {
  for (int unit : layout_.units_of_block(block)) {
    if (!options_.sharded) {
      stream.wait(std::exchange(arrived_[static_cast<size_t>(unit)], {}));
      continue;
    }
    check(gathered(unit), "block {} needs weights that are not gathered", block);
    stream.wait(buffer_of(unit).ready);
  }
}

Tensor ParamStore::owned(const FlatLayout::Segment& segment, int version) const {
  if (!options_.sharded) return whole(segment.flat, segment.flat + segment.count, version);
  return shard(segment.shard, segment.shard + segment.count);
}

Tensor ParamStore::shard(int64_t begin, int64_t end) const {
  std::byte* const memory = file_.bytes() > 0 ? file_.data() : shards_.data();
  const DType type = begin < layout_.plain_shard_elements() ? dtype_ : DType::U8;
  return {memory + layout_.shard_bytes(0, begin, dtype_), type, {end - begin}};
}

void ParamStore::expect(const FlatLayout::Segment& segment) const {
  if (file_.bytes() == 0) return;
  const size_t begin = layout_.shard_bytes(0, segment.shard, dtype_);
  file_.expect(begin, begin + layout_.shard_bytes(segment.shard, segment.shard + segment.count, dtype_));
}

void ParamStore::release(const FlatLayout::Segment& segment) const {
  if (file_.bytes() == 0) return;
  const size_t begin = layout_.shard_bytes(0, segment.shard, dtype_);
  file_.release(begin, begin + layout_.shard_bytes(segment.shard, segment.shard + segment.count, dtype_));
}

void ParamStore::publish(const FlatLayout::Unit& unit, int version, Stream& stream) {
  if (options_.sharded || unit.slices == 1) return;
  const Tensor all = whole(unit.begin, unit.end, version);
  const int64_t begin = layout_.slice_begin(unit, groups_.slice(unit.data));
  const int64_t end = begin + unit.slice_elements();
  comm_stream_.wait(stream.record());
  groups_.shard(unit.data).all_gather(all, whole(begin, end, version), comm_stream_);
  arrived_[static_cast<size_t>(&unit - layout_.units().data())] = comm_stream_.record();
}

void ParamStore::end_update(Stream& stream) {
  if (options_.sharded) finish(stream);
}

void ParamStore::finish(Stream& stream) {
  stream.wait(comm_stream_.record());
  arrived_.assign(arrived_.size(), {});
  updated_ = stream.record();
}

void ParamStore::begin_version(int version, Stream& stream) {
  if (&ring(version) == &ring(version - 1)) return;
  finish(stream);
  ops_.copy(stream, ring(version).flat, ring(version - 1).flat);
}

void ParamStore::restart_at(int version) {
  first_ = static_cast<int>(static_cast<size_t>(first_ + version) % versions_.size());
}

void ParamStore::initialise(uint64_t seed, Stream& stream) {
  for (const FlatLayout::Unit& unit : layout_.units()) {
    if (unit.quantized) continue;  // frozen: zeros, as in initialise_segment, until they are loaded
    const auto slice = options_.sharded ? std::optional(groups_.slice(unit.data)) : std::nullopt;
    for (const FlatLayout::Segment& segment : layout_.segments(unit, slice)) {
      for (int64_t begin = 0; begin < segment.count; begin += kOffloadWindow) {
        const FlatLayout::Segment part = part_of(segment, begin, begin + kOffloadWindow);
        initialise_segment(layout_, part, owned(part), seed, ops_, stream);
        release(part);
      }
    }
  }
}

size_t ParamStore::bytes() const {
  size_t bytes = shards_.bytes() + frozen_.bytes() + quantized_.bytes();
  for (const auto& version : versions_) bytes += version->buffer.bytes();
  for (const UnitBuffer& buffer : buffers_) bytes += buffer.memory.bytes();
  if (file_.bytes() > 0) bytes += layout_.largest_slice_bytes(dtype_);
  return bytes;
}

bool ParamStore::holds(const void* memory) const {
  const auto* at = static_cast<const std::byte*>(memory);
  const auto inside = [at](const Buffer& buffer) {
    return at >= buffer.data() && at < buffer.data() + buffer.bytes();
  };
  return inside(frozen_) || inside(quantized_) ||
         std::any_of(versions_.begin(), versions_.end(),
                     [&](const auto& version) { return inside(version->buffer); });
}

bool ParamStore::gathers(const void* memory) const {
  const auto* at = static_cast<const std::byte*>(memory);
  return std::any_of(buffers_.begin(), buffers_.end(), [at](const UnitBuffer& buffer) {
    return at >= buffer.memory.data() && at < buffer.memory.data() + buffer.memory.bytes();
  });
}

}  // namespace trifold
