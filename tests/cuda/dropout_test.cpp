// Dropout inside attention. A device in 16 bits has its own masks (ops/cuda/attention.h), which are read from results:
// with zero queries all weights of a row are equal, and with the rows of a unit matrix as values the result shows which
// weights were kept; with such rows as output gradients the backward pass shows the same.
#include "cuda/products.h"

namespace trifold::test {
namespace {

constexpr int64_t kBatch = 2, kSeq = 128, kHeads = 4, kWidth = 64;
constexpr double kDrop = 0.25;
const std::vector<int32_t> kLengths{77, 128};

enum class Sight { Causal, All, Lengths };

// Without the lengths themselves, which lie on a device.
Attention dropping(bool causal) {
  Attention how;
  how.batch = kBatch;
  how.seq = kSeq;
  how.heads = how.kv_heads = how.global_heads = kHeads;
  how.head_dim = kWidth;
  how.causal = causal;
  how.scale = 0.125;
  how.dropout = {kDrop, philox_key(9, "dropout"), 0};
  return how;
}

constexpr int64_t kRows = kBatch * kSeq;
constexpr int64_t kPacked = 3 * kHeads * kWidth;
constexpr int64_t kOuts = kHeads * kWidth;
constexpr size_t kWeights = kBatch * kHeads * kSeq * kSeq;

size_t weight_at(int64_t sample, int64_t head, int64_t query, int64_t key) {
  return static_cast<size_t>(((sample * kHeads + head) * kSeq + query) * kSeq + key);
}
// The position of a head's query (part 0), key (1) or value (2).
size_t packed_at(int64_t sample, int64_t position, int part, int64_t head) {
  return static_cast<size_t>((sample * kSeq + position) * kPacked + (part * kHeads + head) * kWidth);
}
size_t out_at(int64_t sample, int64_t position, int64_t head) {
  return static_cast<size_t>((sample * kSeq + position) * kOuts + head * kWidth);
}

// Keys that a query of a sample sees.
int64_t keys_of(const Attention& how, int64_t sample, int64_t query) {
  if (how.causal) return query + 1;
  return how.lengths.data == nullptr ? kSeq : kLengths[static_cast<size_t>(sample)];
}

template <class Body>  // body(sample, head, query, key) for the keys that a query sees
void for_each_weight(const Attention& how, Body body) {
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kSeq; ++i)
        for (int64_t j = 0; j < keys_of(how, b, i); ++j) body(b, h, i, j);
}

// Softmax attention and its gradients in plain words: with P the weights, M the mask's factors and
// dP = (dout value^T) M, dS = P (dP - rowsum(P dP)).
struct Reference {
  Reference(const Values& qkv, const Values& dout, const std::vector<bool>& kept, const Attention& how)
      : out(static_cast<size_t>(kRows * kOuts), 0.0), dqkv(static_cast<size_t>(kRows * kPacked), 0.0) {
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t i = 0; i < kSeq; ++i) add_query(qkv, dout, kept, how, b, h, i);
  }
  Values out, dqkv;

 private:
  void add_query(const Values& qkv, const Values& dout, const std::vector<bool>& kept, const Attention& how,
                 int64_t b, int64_t h, int64_t i) {
    const auto keys = static_cast<size_t>(keys_of(how, b, i));
    const auto row = [&](int64_t position, int part) { return packed_at(b, position, part, h); };
    const size_t own = out_at(b, i, h);
    Values weights(keys), gradients(keys);
    double sum = 0;
    for (size_t j = 0; j < keys; ++j) {
      double score = 0;
      for (size_t d = 0; d < kWidth; ++d)
        score += qkv[row(i, 0) + d] * qkv[row(static_cast<int64_t>(j), 1) + d];
      sum += weights[j] = std::exp(how.scale * score);
    }
    double mean = 0;
    for (size_t j = 0; j < keys; ++j) {
      const size_t value = row(static_cast<int64_t>(j), 2);
      weights[j] /= sum;
      const double factor = kept[weight_at(b, h, i, static_cast<int64_t>(j))] ? 1 / (1 - kDrop) : 0;
      for (size_t d = 0; d < kWidth; ++d) {
        out[own + d] += weights[j] * factor * qkv[value + d];
        dqkv[value + d] += weights[j] * factor * dout[own + d];
        gradients[j] += factor * dout[own + d] * qkv[value + d];
      }
      mean += weights[j] * gradients[j];
    }
    for (size_t j = 0; j < keys; ++j) {
      const double dscore = how.scale * weights[j] * (gradients[j] - mean);
      for (size_t d = 0; d < kWidth; ++d) {
        dqkv[row(i, 0) + d] += dscore * qkv[row(static_cast<int64_t>(j), 1) + d];
        dqkv[row(static_cast<int64_t>(j), 1) + d] += dscore * qkv[row(i, 0) + d];
      }
    }
  }
};

class CudaDropout : public CudaProducts {
 protected:
  struct Made {
    Tensor out, dqkv;
  };
  Made run(const Attention& how, const Values& qkv, const Values& dout) {
    const Tensor in = on_device(DType::BF16, {kRows, kPacked}, qkv);
    const Tensor out = on_device(DType::BF16, {kRows, kOuts});
    const Tensor lse = on_device(DType::F32, {kBatch, kHeads, kSeq});
    const Tensor dqkv = on_device(DType::BF16, {kRows, kPacked});
    ops_->attention(*stream_, out, lse, in, how);
    ops_->attention_backward(*stream_, dqkv, on_device(DType::BF16, {kRows, kOuts}, dout), in, out, lse, how);
    return {out, dqkv};
  }
  Attention dropping_with(Sight sight) {
    Attention how = dropping(sight == Sight::Causal);
    if (sight == Sight::Lengths) how.lengths = on_device(kLengths);
    return how;
  }
  Values read_device(const Tensor& tensor) { return read(tensor, *ops_, *stream_); }

  struct Masks {
    std::vector<bool> forward = std::vector<bool>(kWeights), backward = std::vector<bool>(kWeights);
  };
  // As many keys, and queries, at a time as a head is wide.
  Masks masks(const Attention& how) {
    Masks found;
    for (int64_t first = 0; first < kSeq; first += kWidth) {
      Values qkv(static_cast<size_t>(kRows * kPacked), 0.0);
      Values dout(static_cast<size_t>(kRows * kOuts), 0.0);
      for (int64_t b = 0; b < kBatch; ++b)
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t d = 0; d < kWidth; ++d) {
            qkv[packed_at(b, first + d, 2, h) + static_cast<size_t>(d)] = 1;
            dout[out_at(b, first + d, h) + static_cast<size_t>(d)] = 1;
          }
      const Made made = run(how, qkv, dout);
      const Values out = read_device(made.out);
      const Values dqkv = read_device(made.dqkv);
      for_each_weight(how, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
        const auto column = [&](int64_t position) { return static_cast<size_t>(position - first); };
        if (column(j) < kWidth) found.forward[weight_at(b, h, i, j)] = out[out_at(b, i, h) + column(j)] != 0;
        if (column(i) < kWidth)
          found.backward[weight_at(b, h, i, j)] = dqkv[packed_at(b, j, 2, h) + column(i)] != 0;
      });
    }
    return found;
  }
};

TEST_F(CudaDropout, BackwardDropsTheSameElements) {
  for (const Sight sight : {Sight::Causal, Sight::All, Sight::Lengths}) {
    SCOPED_TRACE(static_cast<int>(sight));
    const Attention how = dropping_with(sight);
    const Masks found = masks(how);
    EXPECT_EQ(found.forward, found.backward);
    double seen = 0;
    double kept = 0;
    for_each_weight(how, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      seen += 1;
      kept += found.forward[weight_at(b, h, i, j)] ? 1 : 0;
    });
    EXPECT_NEAR(kept / seen, 1 - kDrop, 5 * std::sqrt(kDrop * (1 - kDrop) / seen));
  }
}

// A resumed run, and a forward that is repeated, have the masks of the first; others are others.
TEST_F(CudaDropout, AMaskIsOfItsKeySampleAndHead) {
  const Attention how = dropping(false);
  const auto mask_of = [&](auto change) {
    Attention other = how;
    change(other);
    return masks(other).forward;
  };
  const std::vector<bool> mask = mask_of([](Attention&) {});
  EXPECT_EQ(mask_of([](Attention&) {}), mask);
  const auto share = [&](const std::vector<bool>& other) {
    double same = 0;
    for (size_t i = 0; i < kWeights; ++i) same += other[i] == mask[i] ? 1 : 0;
    return same / kWeights;
  };
  const double chance = kDrop * kDrop + (1 - kDrop) * (1 - kDrop);
  EXPECT_NEAR(share(mask_of([](Attention& o) { o.first_sample = kBatch; })), chance, 0.01);
  EXPECT_NEAR(share(mask_of([](Attention& o) { o.first_head = kHeads, o.global_heads = 2 * kHeads; })),
              chance, 0.01);
  EXPECT_NEAR(share(mask_of([](Attention& o) { o.dropout.key = philox_key(9, "another"); })), chance, 0.01);
  // Heads and samples of one call differ as well.
  const size_t head = kSeq * kSeq;
  for (size_t other = 1; other < kBatch * kHeads; ++other) {
    double same = 0;
    for (size_t i = 0; i < head; ++i) same += mask[other * head + i] == mask[i] ? 1 : 0;
    EXPECT_NEAR(same / static_cast<double>(head), chance, 0.03) << other;
  }
}

// With the mask known, results and gradients have one right value.
TEST_F(CudaDropout, GradientsAreThoseOfTheWeightsThatWereKept) {
  for (const Sight sight : {Sight::Causal, Sight::All, Sight::Lengths}) {
    SCOPED_TRACE(static_cast<int>(sight));
    const Attention how = dropping_with(sight);
    const Values qkv = numbers(kRows * kPacked, "qkv");
    const Values dout = numbers(kRows * kOuts, "dout");
    const Made made = run(how, qkv, dout);
    const Reference expected(qkv, dout, masks(how).forward, how);
    EXPECT_LT(error(made.out, on_host(DType::F64, {kRows, kOuts}, expected.out)), 1e-2);
    EXPECT_LT(error(made.dqkv, on_host(DType::F64, {kRows, kPacked}, expected.dqkv)), 2e-2);
  }
}

}  // namespace
}  // namespace trifold::test
