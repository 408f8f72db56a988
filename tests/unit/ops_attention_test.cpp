#include <numeric>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

struct Result {
  Values out, lse;
};

// Stands for the lowest number, which the log of the sum of no key is.
constexpr double kNoKeys = -1e6;

// Lengths in `how` stand for their memory on the host.
int64_t keys_of(const Attention& how, int64_t sample, int64_t query) {
  const int64_t all = how.lengths.data == nullptr ? how.seq : how.lengths.as<int32_t>()[sample];
  if (how.causal) return std::min(query + 1, all);
  return how.right < 0 ? all : std::min(query + how.right + 1, all);
}

int64_t first_of(const Attention& how, int64_t sample, int64_t query) {
  const int64_t first =
      how.first_keys.data == nullptr ? 0 : how.first_keys.as<int32_t>()[sample * how.seq + query];
  return how.left < 0 ? first : std::max(first, query - how.left);
}

double capped(const Attention& how, double score) {
  return how.soft_cap > 0 ? how.soft_cap * std::tanh(score / how.soft_cap) : score;
}

// Plain attention, one probability at a time.
Result reference(const Values& qkv, const Attention& how) {
  const int64_t d = how.head_dim;
  const int64_t stride = (how.heads + 2 * how.kv_heads) * d;
  Result result;
  result.out.resize(static_cast<size_t>(how.batch * how.seq * how.heads * d));
  result.lse.resize(static_cast<size_t>(how.batch * how.heads * how.seq));
  for (int64_t b = 0; b < how.batch; ++b)
    for (int64_t h = 0; h < how.heads; ++h)
      for (int64_t i = 0; i < how.seq; ++i) {
        const int64_t kv = h / (how.heads / how.kv_heads);
        const double* q = qkv.data() + (b * how.seq + i) * stride + h * d;
        const int64_t keys = keys_of(how, b, i);
        Values score(static_cast<size_t>(std::max<int64_t>(keys, 0)));
        double most = -INFINITY;
        const int64_t first = first_of(how, b, i);
        for (int64_t j = first; j < keys; ++j) {
          const double* k = qkv.data() + (b * how.seq + j) * stride + (how.heads + kv) * d;
          double sum = 0;
          for (int64_t c = 0; c < d; ++c) sum += q[c] * k[c];
          score[static_cast<size_t>(j)] = capped(how, sum * how.scale);
          most = std::max(most, score[static_cast<size_t>(j)]);
        }
        if (first >= keys) {
          result.lse[static_cast<size_t>((b * how.heads + h) * how.seq + i)] = kNoKeys;
          continue;
        }
        double sum = 0;
        for (int64_t j = first; j < keys; ++j) sum += std::exp(score[static_cast<size_t>(j)] - most);
        result.lse[static_cast<size_t>((b * how.heads + h) * how.seq + i)] = most + std::log(sum);
        double* out = result.out.data() + ((b * how.seq + i) * how.heads + h) * d;
        for (int64_t j = first; j < keys; ++j) {
          double p = std::exp(score[static_cast<size_t>(j)] - most) / sum;
          const auto element = static_cast<uint64_t>(
              (((how.first_sample + b) * how.global_heads + how.first_head + h) * how.seq + i) * how.seq + j);
          const double drop = how.dropout.probability;
          if (drop > 0)
            p *= philox_word(how.dropout.key, element) >= drop * 4294967296.0 ? 1 / (1 - drop) : 0;
          const double* v = qkv.data() + (b * how.seq + j) * stride + (how.heads + how.kv_heads + kv) * d;
          for (int64_t c = 0; c < d; ++c) out[c] += p * v[c];
        }
      }
  return result;
}

// The gradient of `reference`, from the derivative of the softmax.
Values reference_gradient(const Values& qkv, const Values& dout, const Attention& how) {
  const int64_t d = how.head_dim;
  const int64_t stride = (how.heads + 2 * how.kv_heads) * d;
  const Result forward = reference(qkv, how);
  Values dqkv(qkv.size());
  for (int64_t b = 0; b < how.batch; ++b)
    for (int64_t h = 0; h < how.heads; ++h)
      for (int64_t i = 0; i < how.seq; ++i) {
        const int64_t kv = h / (how.heads / how.kv_heads);
        const int64_t q_at = (b * how.seq + i) * stride + h * d;
        const int64_t out_at = ((b * how.seq + i) * how.heads + h) * d;
        double delta = 0;
        for (int64_t c = 0; c < d; ++c)
          delta += dout[static_cast<size_t>(out_at + c)] * forward.out[static_cast<size_t>(out_at + c)];
        for (int64_t j = first_of(how, b, i); j < keys_of(how, b, i); ++j) {
          const int64_t k_at = (b * how.seq + j) * stride + (how.heads + kv) * d;
          const int64_t v_at = k_at + how.kv_heads * d;
          double score = 0;
          double slope = 0;
          for (int64_t c = 0; c < d; ++c) {
            score += qkv[static_cast<size_t>(q_at + c)] * qkv[static_cast<size_t>(k_at + c)];
            slope += dout[static_cast<size_t>(out_at + c)] * qkv[static_cast<size_t>(v_at + c)];
          }
          const double with_cap = capped(how, score * how.scale);
          const double slope_of_cap =
              how.soft_cap > 0 ? 1 - with_cap * with_cap / (how.soft_cap * how.soft_cap) : 1;
          const double p =
              std::exp(with_cap - forward.lse[static_cast<size_t>((b * how.heads + h) * how.seq + i)]);
          const auto element = static_cast<uint64_t>(
              (((how.first_sample + b) * how.global_heads + how.first_head + h) * how.seq + i) * how.seq + j);
          const double drop = how.dropout.probability;
          const double keep = drop == 0                                                      ? 1
                              : philox_word(how.dropout.key, element) >= drop * 4294967296.0 ? 1 / (1 - drop)
                                                                                             : 0;
          const double ds = p * (slope * keep - delta) * slope_of_cap * how.scale;
          for (int64_t c = 0; c < d; ++c) {
            dqkv[static_cast<size_t>(q_at + c)] += ds * qkv[static_cast<size_t>(k_at + c)];
            dqkv[static_cast<size_t>(k_at + c)] += ds * qkv[static_cast<size_t>(q_at + c)];
            dqkv[static_cast<size_t>(v_at + c)] += p * keep * dout[static_cast<size_t>(out_at + c)];
          }
        }
      }
  return dqkv;
}

Attention shape(int64_t batch, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim, bool causal,
                double drop = 0) {
  Attention how;
  how.batch = batch;
  how.seq = seq;
  how.heads = heads;
  how.kv_heads = kv_heads;
  how.head_dim = head_dim;
  how.causal = causal;
  how.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  how.dropout = {drop, philox_key(5, "attention"), 0};
  how.first_sample = 3;
  how.first_head = heads;
  how.global_heads = 2 * heads;
  return how;
}

void check_attention(const Attention& how) {
  SCOPED_TRACE(fmt::format("batch {} seq {} heads {}/{} width {} causal {} window {}, {} cap {}", how.batch,
                           how.seq, how.heads, how.kv_heads, how.head_dim, how.causal, how.left, how.right,
                           how.soft_cap));
  const int64_t rows = how.batch * how.seq;
  const Shape packed{rows, (how.heads + 2 * how.kv_heads) * how.head_dim};
  const Shape wide{rows, how.heads * how.head_dim};
  const Values qkv = random_values(packed.elements(), 1);
  const Values dout = random_values(wide.elements(), 2);
  const Result expected = reference(qkv, how);
  const Values gradient = reference_gradient(qkv, dout, how);
  check_everywhere(
      {expected.out, expected.lse, gradient},
      [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host out(dtype, wide, Values(dout.size(), NAN));
        const Host lse(dtype, {how.batch, how.heads, how.seq});
        const Host in(dtype, packed, qkv);
        const Host grad(dtype, packed, Values(qkv.size(), NAN));
        ops.attention(stream, out, lse, in, how);
        ops.attention_backward(stream, grad, Host(dtype, wide, dout), in, out, lse, how);
        Values sums = lse.values();
        for (double& sum : sums) sum = std::max(sum, kNoKeys);
        return {out.values(), sums, grad.values()};
      },
      1e-5, 1e-12);
}

TEST(Attention, ShapesCausalOrNotWithAndWithoutDropout) {
  for (bool causal : {true, false})
    for (double drop : {0.0, 0.2}) {
      check_attention(shape(1, 1, 1, 1, 8, causal, drop));
      check_attention(shape(2, 64, 2, 2, 32, causal, drop));
      check_attention(shape(1, 77, 3, 1, 16, causal, drop));
      check_attention(shape(1, 130, 4, 2, 24, causal, drop));
    }
}

// Lengths that end inside a panel, at the end of a block of keys, at 1 and at the last position.
TEST(Attention, KeysBeyondTheLengthOfASampleDoNotExist) {
  for (bool causal : {true, false})
    for (double drop : {0.0, 0.2})
      for (std::vector<int32_t> lengths : {std::vector<int32_t>{1, 77, 40}, {16, 5, 64}}) {
        Attention how = shape(3, 77, 2, 1, 16, causal, drop);
        how.lengths = {lengths.data(), DType::I32, {3}};
        check_attention(how);
      }
  std::vector<int32_t> many{1024, 520};
  Attention how = shape(2, 1100, 1, 1, 8, false, 0.1);
  how.lengths = {many.data(), DType::I32, {2}};
  check_attention(how);
}

// The first keys of samples that hold documents of these lengths; `seq` cuts the last one.
std::vector<int32_t> first_keys(int64_t seq, const std::vector<std::vector<int64_t>>& samples) {
  std::vector<int32_t> first;
  for (const std::vector<int64_t>& lengths : samples) {
    int64_t begin = 0;
    size_t document = 0;
    for (int64_t i = 0; i < seq; ++i) {
      if (document < lengths.size() && i == begin + lengths[document]) begin += lengths[document++];
      first.push_back(static_cast<int32_t>(begin));
    }
  }
  return first;
}

Attention with_documents(Attention how, const std::vector<int32_t>& first) {
  how.first_keys = {const_cast<int32_t*>(first.data()), DType::I32, {how.batch, how.seq}};
  return how;
}

// Documents of one token and of many, that begin at the edges of groups of scores and inside them.
TEST(Attention, DocumentsDoNotSeeEachOther) {
  for (double drop : {0.0, 0.2}) {
    const auto short_ones = first_keys(77, {{1, 1, 14, 16, 3, 30}, {40, 2}, {16, 16, 32, 4}});
    check_attention(with_documents(shape(3, 77, 4, 2, 16, true, drop), short_ones));
    // Beyond a chunk of keys: documents that span it, begin with it, precede it and follow it.
    const auto long_ones = first_keys(1100, {{600, 3}, {512, 512}, {500, 11, 130, 380, 2}});
    check_attention(with_documents(shape(3, 1100, 1, 1, 8, true, drop), long_ones));
  }
}

TEST(Attention, DocumentsOfOneTokenSeeThemselves) {
  std::vector<int32_t> first(100);
  std::iota(first.begin(), first.end(), 0);
  check_attention(with_documents(shape(1, 100, 2, 1, 8, true), first));
}

Attention with_window(Attention how, int64_t left, int64_t right = -1) {
  how.left = left;
  how.right = right;
  return how;
}

// Windows of one key, that end inside groups and chunks of keys, and that cover all.
TEST(Attention, AWindowHidesDistantKeys) {
  for (double drop : {0.0, 0.2})
    for (const int64_t left : {0, 1, 5, 15, 16, 17, 40, 200}) {
      check_attention(with_window(shape(2, 77, 4, 2, 16, true, drop), left));
      for (const int64_t right : {0, 1, 3, 8, 21, 90})
        check_attention(with_window(shape(1, 77, 2, 1, 16, false, drop), left, right));
      check_attention(with_window(shape(1, 77, 2, 1, 16, false, drop), left));
      check_attention(with_window(shape(1, 77, 2, 1, 16, false, drop), -1, left));
    }
  for (const int64_t left : {3, 100, 511, 512, 600, 1023}) {
    check_attention(with_window(shape(1, 1100, 1, 1, 8, true, 0.1), left));
    check_attention(with_window(shape(1, 1100, 1, 1, 8, false, 0.1), left, 37));
  }
}

TEST(Attention, AWindowEndsAtItsDocumentAndAtTheEndOfTheSample) {
  const auto documents = first_keys(77, {{1, 1, 14, 16, 3, 30}, {40, 2}, {16, 16, 32, 4}});
  for (const int64_t left : {0, 7, 20, 64})
    check_attention(with_window(with_documents(shape(3, 77, 4, 2, 16, true, 0.2), documents), left));
  std::vector<int32_t> lengths{1, 77, 40};
  for (const int64_t left : {0, 7, 20, 64}) {  // queries behind the end of a sample may see no key
    Attention how = with_window(shape(3, 77, 2, 1, 16, false, 0.2), left, left / 2);
    how.lengths = {lengths.data(), DType::I32, {3}};
    check_attention(how);
  }
  std::vector<int32_t> few{300};
  Attention how = with_window(shape(1, 1100, 1, 1, 8, false), 50, 50);
  how.lengths = {few.data(), DType::I32, {1}};
  check_attention(how);
}

TEST(Attention, ASoftCapBoundsScores) {
  for (double drop : {0.0, 0.2}) {
    Attention how = shape(2, 77, 4, 2, 16, true, drop);
    how.scale = 3;
    how.soft_cap = 5;
    check_attention(how);
    check_attention(with_window(how, 9));
    how.causal = false;
    check_attention(with_window(how, 9, 4));
  }
}

TEST(Attention, AWindowOfAllPositionsHasTheBitsOfNone) {
  const Attention plain = shape(2, 600, 2, 1, 16, true, 0.1);
  const Values qkv = random_values(int64_t{1200} * 64, 1);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const auto results = [&](const Attention& how) {
      const Host in(DType::F32, {1200, 64}, qkv);
      const Host out(DType::F32, {1200, 32});
      const Host lse(DType::F32, {2, 2, 600});
      const Host grad(DType::F32, {1200, 64});
      ops.attention(stream, out, lse, in, how);
      ops.attention_backward(stream, grad, out, in, out, lse, how);
      return std::vector{out.values(), lse.values(), grad.values()};
    };
    EXPECT_EQ(results(with_window(plain, 599)), results(plain));
  });
}

// One document is what there is without any.
TEST(Attention, OneDocumentHasTheBitsOfNone) {
  const Attention plain = shape(2, 600, 2, 1, 16, true, 0.1);
  const std::vector<int32_t> zeros(1200, 0);
  const Values qkv = random_values(int64_t{1200} * 64, 1);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const auto results = [&](const Attention& how) {
      const Host in(DType::F32, {1200, 64}, qkv);
      const Host out(DType::F32, {1200, 32});
      const Host lse(DType::F32, {2, 2, 600});
      const Host grad(DType::F32, {1200, 64});
      ops.attention(stream, out, lse, in, how);
      ops.attention_backward(stream, grad, out, in, out, lse, how);
      return std::vector{out.values(), lse.values(), grad.values()};
    };
    EXPECT_EQ(results(with_documents(plain, zeros)), results(plain));
  });
}

// Memory after the end may hold anything.
TEST(Attention, PaddingIsNeverRead) {
  std::vector<int32_t> lengths{3};
  Attention how = shape(1, 20, 1, 1, 8, false);
  how.lengths = {lengths.data(), DType::I32, {1}};
  Values qkv = random_values(20 * 24, 1);
  const auto outputs = [&](const OpTable& ops, Stream& stream) {
    const Host out(DType::F32, {20, 8});
    const Host lse(DType::F32, {1, 1, 20});
    ops.attention(stream, out, lse, Host(DType::F32, {20, 24}, qkv), how);
    return out.values();
  };
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Values before = outputs(ops, stream);
    for (size_t row = 3; row < 20; ++row)
      for (size_t c = 8; c < 24; ++c) qkv[row * 24 + c] = NAN;  // keys and values
    EXPECT_EQ(outputs(ops, stream), before);
    qkv = random_values(20 * 24, 1);
  });
}

TEST(Attention, ManyBlocksOfKeys) {
  for (bool causal : {true, false}) check_attention(shape(1, 1100, 1, 1, 8, causal, 0.1));
}

TEST(Attention, WideHeads) { check_attention(shape(1, 70, 1, 1, 256, true)); }

// In f64, with every table.
void check_derivative(const Attention& how, double tolerance) {
  const Shape packed{how.batch * how.seq, (how.heads + 2 * how.kv_heads) * how.head_dim};
  const Shape wide{how.batch * how.seq, how.heads * how.head_dim};
  const Values qkv = random_values(packed.elements(), 3);
  const Values dout = random_values(wide.elements(), 4);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host out(DType::F64, wide);
    const Host lse(DType::F64, {how.batch, how.heads, how.seq});
    const Host grad(DType::F64, packed);
    const auto loss = [&](const Values& values) {
      ops.attention(stream, out, lse, Host(DType::F64, packed, values), how);
      return dot(out.values(), dout);
    };
    loss(qkv);
    ops.attention_backward(stream, grad, Host(DType::F64, wide, dout), Host(DType::F64, packed, qkv), out,
                           lse, how);
    check_gradient(loss, qkv, grad.values(), tolerance);
  });
}

TEST(Attention, BackwardIsTheDerivative) {
  for (bool causal : {true, false})
    for (double drop : {0.0, 0.3}) check_derivative(shape(2, 5, 2, 1, 3, causal, drop), 1e-6);
}

TEST(Attention, BackwardIsTheDerivativeWithAWindowAndASoftCap) {
  for (double drop : {0.0, 0.3})
    for (bool causal : {true, false}) {
      Attention how = with_window(shape(2, 24, 2, 1, 3, causal, drop), 5, causal ? -1 : 2);
      how.soft_cap = 0.7;
      check_derivative(how, 1e-8);
    }
}

// A sink is a key whose score is its logit and whose value is 0.
TEST(Attention, ASinkTakesPartInTheSoftmax) {
  const Attention how = with_window(shape(2, 33, 4, 2, 8, true), 9);
  const Values qkv = random_values(int64_t{66} * 64, 1), logits{0.3, -2, 5, 90};
  Result expected = reference(qkv, how);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t t = 0; t < 33; ++t) {
        double& lse = expected.lse[static_cast<size_t>((b * 4 + h) * 33 + t)];
        const double most = std::max(lse, logits[static_cast<size_t>(h)]);
        const double sum =
            most + std::log(std::exp(lse - most) + std::exp(logits[static_cast<size_t>(h)] - most));
        for (int64_t c = 0; c < 8; ++c)
          expected.out[static_cast<size_t>(((b * 33 + t) * 4 + h) * 8 + c)] *= std::exp(lse - sum);
        lse = sum;
      }
  check_everywhere(
      {expected.out, expected.lse},
      [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host out(dtype, {66, 32});
        const Host lse(dtype, {2, 4, 33});
        ops.attention(stream, out, lse, Host(dtype, {66, 64}, qkv), how);
        ops.attention_sinks(stream, out, lse, Host(dtype, {4}, logits));
        return {out.values(), lse.values()};
      },
      1e-5, 1e-12);
}

TEST(Attention, BackwardIsTheDerivativeWithSinks) {
  const Attention how = with_window(shape(2, 9, 2, 1, 3, true), 4);
  const Values qkv = random_values(int64_t{18} * 12, 3), dout = random_values(int64_t{18} * 6, 4);
  const Values logits{0.4, -0.7};
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host out(DType::F64, {18, 6});
    const Host lse(DType::F64, {2, 2, 9});
    const auto loss = [&](const Values& values, const Values& sinks) {
      ops.attention(stream, out, lse, Host(DType::F64, {18, 12}, values), how);
      ops.attention_sinks(stream, out, lse, Host(DType::F64, {2}, sinks));
      return dot(out.values(), dout);
    };
    loss(qkv, logits);
    const Host grad(DType::F64, {18, 12});
    const Host dsinks(DType::F64, {2});
    const Host gradient(DType::F64, {18, 6}, dout);
    ops.attention_backward(stream, grad, gradient, Host(DType::F64, {18, 12}, qkv), out, lse, how);
    ops.attention_sinks_backward(stream, dsinks, gradient, out, lse, Host(DType::F64, {2}, logits));
    check_gradient([&](const Values& values) { return loss(values, logits); }, qkv, grad.values(), 1e-8);
    check_gradient([&](const Values& sinks) { return loss(qkv, sinks); }, logits, dsinks.values(), 1e-8);
  });
}

TEST(Attention, BackwardIsTheDerivativeWithDocuments) {
  const auto first = first_keys(24, {{5, 1, 13}, {16, 4}});
  for (double drop : {0.0, 0.3})
    check_derivative(with_documents(shape(2, 24, 2, 1, 3, true, drop), first), 1e-8);
}

TEST(Attention, DropoutBelongsToGlobalSamplesAndHeads) {
  // Sample 1, head 1 of the whole must equal the same sample and head held alone elsewhere.
  Attention whole = shape(2, 20, 2, 2, 8, true, 0.4);
  whole.first_sample = 0;
  whole.first_head = 0;
  whole.global_heads = 2;
  const Values qkv = random_values(2 * 20 * 48, 8);
  Values part;
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t head : {1, 3, 5})
      for (int64_t c = 0; c < 8; ++c) part.push_back(qkv[static_cast<size_t>((20 + i) * 48 + head * 8 + c)]);
  Attention alone = whole;
  alone.batch = 1;
  alone.heads = 1;
  alone.kv_heads = 1;
  alone.first_sample = 1;
  alone.first_head = 1;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host out(DType::F64, {40, 16});
    const Host lse(DType::F64, {2, 2, 20});
    const Host part_out(DType::F64, {20, 8});
    const Host part_lse(DType::F64, {1, 1, 20});
    ops.attention(stream, out, lse, Host(DType::F64, {40, 48}, qkv), whole);
    ops.attention(stream, part_out, part_lse, Host(DType::F64, {20, 24}, part), alone);
    Values expected;
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t c = 0; c < 8; ++c)
        expected.push_back(out.values()[static_cast<size_t>((20 + i) * 16 + 8 + c)]);
    EXPECT_LE(distance(part_out.values(), expected), 1e-13);
  });
}

TEST(Attention, OfSomePositionsNeedsTheKeysOfAll) {
  Attention how = shape(1, 12, 1, 1, 8, true);
  how.rows = SequenceRows::zig_zag(12, 0, 3);
  const Host packed(DType::F32, {4, 24});
  const Host out(DType::F32, {4, 8});
  const Host lse(DType::F32, {1, 1, 4});
  with_every_table([&](const OpTable& ops, Stream& stream) {
    EXPECT_THROW(ops.attention(stream, out, lse, packed, how), Error);  // no keys
    const Host keys(DType::F32, {12, 16});
    how.key_values = keys;
    EXPECT_NO_THROW(ops.attention(stream, out, lse, packed, how));
    how.seq = 14;
    EXPECT_THROW(ops.attention(stream, out, lse, packed, how), Error);
    how.seq = 12;
    how.first_given = how.given_heads = 1;  // the second of one
    EXPECT_THROW(ops.attention(stream, out, lse, packed, how), Error);
    how.first_given = how.given_heads = 0;
    how.key_values = {};
  });
}

TEST(Attention, StepsBeginWithTheirOwnKeysAndKeysDoNotOverlapThem) {
  Attention how = shape(1, 12, 1, 1, 8, true);
  how.rows = SequenceRows::zig_zag(12, 0, 3);
  how.key_rows = SequenceRows::zig_zag(12, 1, 3);
  const Host packed(DType::F32, {4, 24});
  const Host out(DType::F32, {4, 8});
  const Host lse(DType::F32, {1, 1, 4});
  const Host keys(DType::F32, {4, 16});
  how.key_values = keys;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    EXPECT_THROW(ops.attention(stream, out, lse, packed, how), Error);
    how.further = true;
    EXPECT_NO_THROW(ops.attention(stream, out, lse, packed, how));
    const SequenceRows kept = how.key_rows;
    how.key_rows = SequenceRows::zig_zag(12, 0, 2);  // positions 0 to 2 and 9 to 11, over 0, 1, 10 and 11
    const Host six(DType::F32, {6, 16});
    how.key_values = six;
    EXPECT_THROW(ops.attention(stream, out, lse, packed, how), Error);
    how.key_rows = kept;
    how.key_values = keys;
    how.further = false;
  });
}

}  // namespace
}  // namespace trifold::ops_test
