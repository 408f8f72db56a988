// Launchers of update rules and of sums of squares by chunk.
#include <cstddef>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// Each element reads four or five arrays and writes three.
constexpr int64_t kUpdateGrain = kCheapGrain / 4;
constexpr int64_t kChunkGrain = kCheapGrain / kNormChunk;
static_assert(kSquaresChunk == kNormChunk);

// The part of a copy of weights of type T that begins at element `begin`.
template <class T>
WeightCopy from(WeightCopy copy, int64_t begin) {
  if (copy.type == CopyType::None) return copy;
  const size_t size = copy.type == CopyType::Same ? sizeof(T) : sizeof(Bfloat16);
  copy.to = static_cast<std::byte*>(copy.to) + begin * static_cast<int64_t>(size);
  return copy;
}

template <class T>
T* from(T* array, int64_t begin) {
  return array == nullptr ? nullptr : array + begin;
}

// Enqueues kernel(p, copy, states..., count, rule) over parts of the elements.
template <class T, class Rule, class Kernel, class... Arrays>
void update(Stream& stream, Kernel kernel, const Tensor& p, WeightCopy copy, const LateRule<Rule>& rule,
            Arrays*... arrays) {
  stream.run([=, pool = &stream.pool(), weights = p.as<T>(), count = p.elements()] {
    const Rule now = rule.now();
    pool->parallel_for(count, kUpdateGrain, [=, &now](int64_t begin, int64_t end) {
      kernel(weights + begin, from<T>(copy, begin), from(arrays, begin)..., end - begin, now);
    });
  });
}

}  // namespace

void chunk_squares(const KernelTable& table, Stream& stream, Tensor partials, Tensor x) {
  const int64_t count = x.elements();
  const int64_t chunks = chunks_of(count);
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([pool = &stream.pool(), out = partials.as<double>(), in = x.as<T>(), count, chunks,
                kernel = kernels<T>(table).chunk_squares] {
      pool->parallel_for(chunks, kChunkGrain, [=](int64_t begin, int64_t end) {
        const int64_t first = begin * kNormChunk;
        kernel(out + begin, in + first, std::min(count, end * kNormChunk) - first);
      });
    });
  });
}

void adamw(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, Tensor g,
           const AdamW& rule) {
  const LateRule<AdamWRule> folded = late("adamw", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    update<T>(stream, kernels<T>(table).adamw, p, copy_of("adamw", p, copy), folded, m.as<T>(), v.as<T>(),
              static_cast<const T*>(g.as<T>()));
  });
}

void sgd(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor b, Tensor g,
         const Sgd& rule) {
  const bool has_momentum = rule.momentum != 0;
  const LateRule<SgdRule> folded = late("sgd", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    update<T>(stream, kernels<T>(table).sgd, p, copy_of("sgd", p, copy), folded,
              has_momentum ? b.as<T>() : nullptr, static_cast<const T*>(g.as<T>()));
  });
}

void adagrad(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor s, Tensor g,
             const Adagrad& rule) {
  const LateRule<AdagradRule> folded = late("adagrad", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    update<T>(stream, kernels<T>(table).adagrad, p, copy_of("adagrad", p, copy), folded, s.as<T>(),
              static_cast<const T*>(g.as<T>()));
  });
}

// Calls kernel(out, in, count, global element, words) for each row of the part of the tensor.
template <class Out, class Kernel>
void round_rows(Stream& stream, Out* out, Tensor x, const RandomRounding& which, Kernel kernel) {
  DropRule words;
  words.key_lo = which.key.lo;
  words.key_hi = which.key.hi;
  const auto round = [=, in = static_cast<const float*>(x.as<float>())](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t element = which.first + begin;
      const int64_t column = element % which.width;
      const int64_t count = std::min(end - begin, which.width - column);
      const int64_t global = which.begin + element / which.width * which.stride + column;
      kernel(out + begin, in + begin, count, static_cast<uint64_t>(global), words);
      begin += count;
    }
  };
  over_elements(stream, x.elements(), kUpdateGrain, round);
}

void round_randomly(const KernelTable& table, Stream& stream, Tensor y, Tensor x,
                    const RandomRounding& which) {
  if (y.dtype == DType::BF16) {
    round_rows(stream, y.as<Bfloat16>(), x, which, kernels<float>(table).round_randomly);
    return;
  }
  round_rows(stream, y.as<uint8_t>(), x, which,
             [is_signed = which.format == SmallFloat::Signed, kernel = kernels<float>(table).round_to_small](
                 uint8_t* out, const float* in, int64_t count, uint64_t first, const DropRule& words) {
               kernel(out, in, count, first, words, is_signed);
             });
}

void widen_small(const KernelTable& table, Stream& stream, Tensor y, Tensor x, SmallFloat format) {
  over_elements(stream, y.elements(), kUpdateGrain,
                [out = y.as<float>(), in = static_cast<const uint8_t*>(x.as<uint8_t>()),
                 kernel = kernels<float>(table).widen_small, is_signed = format == SmallFloat::Signed](
                    int64_t begin, int64_t end) { kernel(out + begin, in + begin, end - begin, is_signed); });
}

void lamb_moments(const KernelTable& table, Stream& stream, Tensor p_squares, Tensor u_squares, Tensor m,
                  Tensor v, Tensor p, Tensor g, const Lamb& rule) {
  const int64_t count = p.elements();
  const int64_t chunks = chunks_of(count);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([pool = &stream.pool(), weight_out = p_squares.as<double>(),
                direction_out = u_squares.as<double>(), first = m.as<T>(), second = v.as<T>(),
                weight = p.as<T>(), grad = g.as<T>(), count, chunks, folded = late("lamb_moments", rule),
                kernel = kernels<T>(table).lamb_moments] {
      const LambRule now = folded.now();
      pool->parallel_for(chunks, kChunkGrain / 4, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * kNormChunk;
        kernel(weight_out + begin, direction_out + begin, first + at, second + at, weight + at, grad + at,
               std::min(count, end * kNormChunk) - at, now);
      });
    });
  });
}

void lamb(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v,
          const Lamb& rule) {
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    update<T>(stream, kernels<T>(table).lamb, p, copy_of("lamb", p, copy), late("lamb", rule),
              static_cast<const T*>(m.as<T>()), static_cast<const T*>(v.as<T>()));
  });
}

void add_optimizer(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::chunk_squares, chunk_squares>(ops, table);
  bind<&OpTable::adamw, adamw>(ops, table);
  bind<&OpTable::sgd, sgd>(ops, table);
  bind<&OpTable::adagrad, adagrad>(ops, table);
  bind<&OpTable::round_randomly, round_randomly>(ops, table);
  bind<&OpTable::widen_small, widen_small>(ops, table);
  bind<&OpTable::lamb_moments, lamb_moments>(ops, table);
  bind<&OpTable::lamb, lamb>(ops, table);
}

}  // namespace trifold::cpu
