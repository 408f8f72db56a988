#include "zero/quantized_segment.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 22;  // values in memory, in f32

// Consecutive bands of rows (QuantizedForm::band_end), and where their codes and scales are in the storage.
struct Bands {
  std::vector<int64_t> begins;  // rows, and the end of the last band
  int64_t first() const { return begins.front(); }
  int64_t end() const { return begins.back(); }
};

// The bands from `row` on that are read together.
Bands bands_from(const QuantizedForm& form, int64_t row) {
  Bands bands{{row}};
  do bands.begins.push_back(form.band_end(bands.end()));
  while (bands.end() < form.rows && (form.band_end(bands.end()) - row) * form.columns <= kElementsAtOnce);
  return bands;
}

// The index of a row's first scale; for the end of a band, of the scale that follows it.
int64_t scale_of(const QuantizedForm& form, int64_t row) {
  return row == form.rows ? form.scales() : form.first_scale(row);
}

// The codes and scales of bands on the host, quantized by all threads.
struct QuantizedBands {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
};

QuantizedBands quantize(const QuantizedForm& form, const Bands& bands, std::span<const float> x,
                        ThreadPool& pool) {
  const int64_t first_scale = scale_of(form, bands.first());
  QuantizedBands made;
  made.codes.resize(static_cast<size_t>((bands.end() - bands.first()) * form.row_bytes()));
  made.scales.resize(static_cast<size_t>(scale_of(form, bands.end()) - first_scale));
  const auto part = [](auto& all, int64_t begin, int64_t end) {
    return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  pool.parallel_for(std::ssize(bands.begins) - 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = bands.begins[static_cast<size_t>(i)],
                    last = bands.begins[static_cast<size_t>(i) + 1];
      const int64_t from = row - bands.first(), until = last - bands.first();
      quantize_band(form, row, part(x, from * form.columns, until * form.columns),
                    part(made.codes, from * form.row_bytes(), until * form.row_bytes()),
                    part(made.scales, scale_of(form, row) - first_scale, scale_of(form, last) - first_scale));
    }
  });
  return made;
}

// Copies the part of `bytes`, which belong at byte `at` of the storage, that is in the segment.
void put(const FlatLayout::Segment& segment, Tensor stored, int64_t at, std::span<const std::byte> bytes,
         const OpTable& ops, Stream& stream) {
  const int64_t begin = std::max(at, segment.first);
  const int64_t end = std::min(at + std::ssize(bytes), segment.first + segment.count);
  if (begin >= end) return;
  auto* from = const_cast<std::byte*>(bytes.data()) + (begin - at);  // NOLINT: only read
  ops.copy(stream, stored.rows(begin - segment.first, end - segment.first), {from, DType::U8, {end - begin}});
}

}  // namespace

void fill_quantized(const FlatLayout& layout, const FlatLayout::Segment& segment, Tensor stored, ReadBox read,
                    const OpTable& ops, Stream& stream) {
  const ParamSpec& spec = layout.params()[segment.id];
  const QuantizedForm& form = *spec.quantized;
  const auto is_wanted = [&](int64_t begin, int64_t end) {
    return begin < segment.first + segment.count && segment.first < end;
  };
  std::vector<float> values;
  for (int64_t row = 0; row < form.rows;) {
    const Bands bands = bands_from(form, row);
    row = bands.end();
    const int64_t codes_at = bands.first() * form.row_bytes();
    const int64_t scales_at = form.scales_at() + 2 * scale_of(form, bands.first());
    if (!is_wanted(codes_at, bands.end() * form.row_bytes()) &&
        !is_wanted(scales_at, form.scales_at() + 2 * scale_of(form, bands.end())))
      continue;
    const int64_t begin = bands.first() * form.columns, end = bands.end() * form.columns;
    values.resize(static_cast<size_t>(end - begin));
    float* to = values.data();
    for (const Rect& rect : rects_of_range(spec.shard.local, begin, end)) {
      read(rect, {to, DType::F32, rect.extent});
      to += rect.elements();
    }
    try {
      const QuantizedBands made = quantize(form, bands, values, stream.pool());
      put(segment, stored, codes_at, std::as_bytes(std::span(made.codes)), ops, stream);
      put(segment, stored, scales_at, std::as_bytes(std::span(made.scales)), ops, stream);
      stream.synchronize();
    } catch (Error& error) {
      error.add_context("quantizing " + spec.shard.name);
      throw;
    }
  }
}

}  // namespace trifold
