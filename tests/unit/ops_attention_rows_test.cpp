// Attention of some positions of a sequence to keys and values of all, at once or in steps, as on context-parallel
// ranks.
#include <deque>
#include <map>

#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

struct Case {
  int64_t batch, seq, heads, kv_heads, width;
  int parts;
  double drop = 0;
  std::vector<int64_t> documents = {};  // lengths, of each sample
  std::vector<int32_t> lengths = {};    // of each sample, whose positions see all others
  int64_t left = -1, right = -1;        // a window
};

std::vector<int32_t> document_begins(const Case& c) {
  std::vector<int32_t> begins;
  for (int64_t b = 0; b < c.batch; ++b)
    for (const int64_t length : c.documents) {
      const auto begin = static_cast<int32_t>(static_cast<int64_t>(begins.size()) % c.seq);
      begins.insert(begins.end(), static_cast<size_t>(length), begin);
    }
  return begins;
}

// Rows of a matrix of all positions, [batch * seq, columns], that a rank has.
template <class Number>
std::vector<Number> rows_of(const std::vector<Number>& all, const Case& c, const SequenceRows& rows,
                            int64_t columns) {
  std::vector<Number> mine;
  for (int64_t b = 0; b < c.batch; ++b)
    for (const RowRun& run : rows.runs()) {
      const auto at = all.begin() + (b * c.seq + run.begin) * columns;
      mine.insert(mine.end(), at, at + run.count * columns);
    }
  return mine;
}

// The log-sums are [batch, heads, positions].
Values lse_of(const Values& all, const Case& c, const SequenceRows& rows) {
  Case by_head = c;
  by_head.batch = c.batch * c.heads;
  return rows_of(all, by_head, rows, 1);
}

// Columns [begin, end) of a matrix.
Values columns_of(const Values& all, int64_t columns, int64_t begin, int64_t end) {
  Values part;
  for (size_t row = 0; row < all.size(); row += static_cast<size_t>(columns))
    part.insert(part.end(), all.begin() + static_cast<int64_t>(row) + begin,
                all.begin() + static_cast<int64_t>(row) + end);
  return part;
}

Attention attention_of(const Case& c) {
  Attention how;
  how.batch = c.batch;
  how.seq = c.seq;
  how.heads = c.heads;
  how.kv_heads = c.kv_heads;
  how.head_dim = c.width;
  how.scale = 1 / std::sqrt(static_cast<double>(c.width));
  how.dropout = {c.drop, philox_key(5, "attention"), 0};
  how.causal = c.lengths.empty();
  how.left = c.left;
  how.right = c.right;
  how.first_sample = 3;
  how.first_head = c.heads;
  how.global_heads = 2 * c.heads;
  return how;
}

// The results for all positions at once, or for those of one rank.
struct Outputs3 {
  Values out, lse, dqkv, dkeys;
};

class Rows {
 public:
  Rows(const Case& c, const OpTable& ops, Stream& stream, DType dtype)
      : c_(c),
        ops_(ops),
        stream_(stream),
        dtype_(dtype),
        queries_(c.heads * c.width),
        keys_(2 * c.kv_heads * c.width),
        qkv_(random_values(c.batch * c.seq * (queries_ + keys_), 1)),
        dout_(random_values(c.batch * c.seq * queries_, 2)),
        begins_(document_begins(c)) {}

  int64_t queries() const { return queries_; }
  int64_t keys() const { return keys_; }

  Outputs3 whole() const { return run({attention_of(c_)}, SequenceRows(c_.seq)); }

  // With the keys of `each` heads at a time (0: of all). `dkeys` are then those of the groups of heads in turn.
  Outputs3 part(const SequenceRows& rows, int64_t each = 0) const {
    std::deque<Host> keys, dkeys;
    std::vector<Attention> calls;
    if (each == 0) each = c_.kv_heads;
    for (int64_t first = 0; first < c_.kv_heads; first += each) {
      Attention& how = calls.emplace_back(attention_of(c_));
      how.rows = rows;
      how.first_given = first;
      how.given_heads = std::min(each, c_.kv_heads - first);
      const Shape shape{c_.batch * c_.seq, 2 * how.given_heads * c_.width};
      how.key_values = keys.emplace_back(dtype_, shape, keys_of(first, how.given_heads));
      how.dkey_values = dkeys.emplace_back(accumulate_type(dtype_), shape,
                                           Values(static_cast<size_t>(shape.elements()), NAN));
    }
    Outputs3 result = run(calls, rows);
    for (const Host& some : dkeys) {
      const Values values = some.values();
      result.dkeys.insert(result.dkeys.end(), values.begin(), values.end());
    }
    return result;
  }

  // From gradients of the keys of all heads those that part(rows, each) returns.
  Values by_groups(const Values& dkeys, int64_t each) const {
    Values result;
    for (int64_t first = 0; first < c_.kv_heads; first += each)
      append_columns(result, dkeys, keys_, 0, first, std::min(each, c_.kv_heads - first));
    return result;
  }

  // The same in a step for each part, its own first: `dkeys` are then those of the keys of each part in turn, in
  // the order of the steps.
  Outputs3 part_in_steps(int part) const {
    Attention how = attention_of(c_);
    how.rows = SequenceRows::zig_zag(c_.seq, part, c_.parts);
    const DType wide = accumulate_type(dtype_);
    const int64_t here = c_.batch * how.rows.rows();
    const Values all_keys = columns_of(qkv_, queries_ + keys_, queries_, queries_ + keys_);
    Values packed = rows_of(qkv_, c_, how.rows, queries_ + keys_);
    for (size_t i = 0; i < packed.size(); ++i)  // not read
      if (static_cast<int64_t>(i) % (queries_ + keys_) >= queries_) packed[i] = NAN;
    std::vector<int32_t> begins = begins_;
    if (!begins.empty()) how.first_keys = {begins.data(), DType::I32, {c_.batch, c_.seq}};
    std::vector<int32_t> lengths = c_.lengths;
    if (!lengths.empty()) how.lengths = {lengths.data(), DType::I32, {c_.batch}};
    const Host in(dtype_, {here, queries_ + keys_}, packed);
    const Host merged(wide, {here, queries_}, Values(static_cast<size_t>(here * queries_), NAN));
    const Host lse(wide, {c_.batch, c_.heads, how.rows.rows()},
                   Values(static_cast<size_t>(here * c_.heads), NAN));
    const auto each_step = [&](auto body) {
      for (int step = 0; step < c_.parts; ++step) {
        how.key_rows = SequenceRows::zig_zag(c_.seq, (part - step + c_.parts) % c_.parts, c_.parts);
        how.further = step > 0;
        const Host keys(dtype_, {c_.batch * how.key_rows.rows(), keys_},
                        rows_of(all_keys, c_, how.key_rows, keys_));
        how.key_values = keys;
        body();
      }
    };
    each_step([&] { ops_.attention(stream_, merged, lse, in, how); });
    const Host out(dtype_, {here, queries_}, merged.values());
    const Host grad(dtype_, {here, queries_ + keys_}, Values(packed.size(), 7));
    const Host dout(dtype_, {here, queries_}, rows_of(dout_, c_, how.rows, queries_));
    const Host dqueries(wide, {here, queries_}, Values(static_cast<size_t>(here * queries_), 0));
    how.dqueries = dqueries;
    Outputs3 result;
    each_step([&] {
      const Host dkeys(wide, how.key_values.shape, Values(static_cast<size_t>(how.key_values.elements()), 0));
      how.dkey_values = dkeys;
      ops_.attention_backward(stream_, grad, dout, in, out, lse, how);
      const Values added = dkeys.values();
      result.dkeys.insert(result.dkeys.end(), added.begin(), added.end());
    });
    EXPECT_EQ(grad.values(), Values(packed.size(), 7)) << "left alone";
    result.out = out.values();
    result.lse = lse.values();
    result.dqkv = dqueries.values();
    return result;
  }

 private:
  // Appends keys, then values, of some heads in each row of a matrix in which those of all begin at column `begin`.
  void append_columns(Values& to, const Values& from, int64_t columns, int64_t begin, int64_t first,
                      int64_t count) const {
    for (size_t row = 0; row < from.size() / static_cast<size_t>(columns); ++row)
      for (const int64_t kind : {int64_t{0}, c_.kv_heads}) {
        const auto at =
            from.begin() + static_cast<int64_t>(row) * columns + begin + (kind + first) * c_.width;
        to.insert(to.end(), at, at + count * c_.width);
      }
  }
  Values keys_of(int64_t first, int64_t count) const {
    Values result;
    append_columns(result, qkv_, queries_ + keys_, queries_, first, count);
    return result;
  }

  Outputs3 run(std::vector<Attention> calls, const SequenceRows& rows) const {
    const int64_t here = c_.batch * rows.rows();
    Values packed = rows_of(qkv_, c_, rows, queries_ + keys_);
    if (calls[0].key_values.data != nullptr)  // its own keys and values are not read
      for (size_t i = 0; i < packed.size(); ++i)
        if (static_cast<int64_t>(i) % (queries_ + keys_) >= queries_) packed[i] = NAN;
    std::vector<int32_t> begins = begins_;
    std::vector<int32_t> lengths = c_.lengths;
    for (Attention& how : calls) {
      if (!begins.empty()) how.first_keys = {begins.data(), DType::I32, {c_.batch, c_.seq}};
      if (!lengths.empty()) how.lengths = {lengths.data(), DType::I32, {c_.batch}};
    }
    const Host in(dtype_, {here, queries_ + keys_}, packed);
    const Host out(dtype_, {here, queries_}, Values(static_cast<size_t>(here * queries_), NAN));
    const Host lse(accumulate_type(dtype_), {c_.batch, c_.heads, rows.rows()});
    const Host grad(dtype_, {here, queries_ + keys_}, Values(packed.size(), 7));
    const Host dout(dtype_, {here, queries_}, rows_of(dout_, c_, rows, queries_));
    for (const Attention& how : calls) ops_.attention(stream_, out, lse, in, how);
    for (const Attention& how : calls) ops_.attention_backward(stream_, grad, dout, in, out, lse, how);
    return {out.values(), lse.values(), grad.values(), {}};
  }

  Case c_;
  const OpTable& ops_;
  Stream& stream_;
  DType dtype_;
  int64_t queries_, keys_;
  Values qkv_, dout_;
  std::vector<int32_t> begins_;
};

// Whether runs are of whole tiles, or heads of whole vectors.
bool keeps_bits(const Case& c) { return c.seq / (2 * c.parts) % 8 == 0 || c.width % 16 == 0; }

// Queries have what they have on one rank, in and back, to the last bit where tiles are whole; the gradients of
// keys and values add up to those of one rank.
void check_parts(const Case& c, DType dtype, double tolerance) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    SCOPED_TRACE(fmt::format("{} seq {} heads {}/{} width {} parts {} dropout {} documents {}",
                             name_of(dtype), c.seq, c.heads, c.kv_heads, c.width, c.parts, c.drop,
                             c.documents.size()));
    const Rows rows(c, ops, stream, dtype);
    const Outputs3 whole = rows.whole();
    const int64_t columns = rows.queries() + rows.keys();
    Values sum(static_cast<size_t>(c.batch * c.seq * rows.keys()));
    for (int part = 0; part < c.parts; ++part) {
      const SequenceRows mine = SequenceRows::zig_zag(c.seq, part, c.parts);
      const Outputs3 got = rows.part(mine);
      const auto expect_same = [&](const Values& a, const Values& b) {
        if (keeps_bits(c))
          EXPECT_EQ(a, b) << part;
        else
          EXPECT_LE(distance(a, b), tolerance) << part;
      };
      expect_same(got.out, rows_of(whole.out, c, mine, rows.queries()));
      expect_same(got.lse, lse_of(whole.lse, c, mine));
      expect_same(columns_of(got.dqkv, columns, 0, rows.queries()),
                  columns_of(rows_of(whole.dqkv, c, mine, columns), columns, 0, rows.queries()));
      // Those of keys and values here are left alone.
      EXPECT_EQ(columns_of(got.dqkv, columns, rows.queries(), columns),
                Values(static_cast<size_t>(c.batch * mine.rows() * rows.keys()), 7));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += got.dkeys[i];
    }
    EXPECT_LE(distance(sum, columns_of(whole.dqkv, columns, rows.queries(), columns)), tolerance);
  });
}

// In steps with the keys of each rank, as they come round a ring: merged, all of it is that of the whole sequence.
void check_steps(const Case& c, DType dtype, double tolerance) {
  with_every_table([&](const OpTable& ops, Stream& stream) {
    SCOPED_TRACE(fmt::format("{} seq {} heads {}/{} width {} parts {} dropout {} documents {}",
                             name_of(dtype), c.seq, c.heads, c.kv_heads, c.width, c.parts, c.drop,
                             c.documents.size()));
    const Rows rows(c, ops, stream, dtype);
    const Outputs3 whole = rows.whole();
    const int64_t columns = rows.queries() + rows.keys();
    const Values whole_queries = columns_of(whole.dqkv, columns, 0, rows.queries());
    const Values whole_keys = columns_of(whole.dqkv, columns, rows.queries(), columns);
    std::map<int, Values> sums;  // of the gradients of each part's keys
    for (int part = 0; part < c.parts; ++part) {
      const SequenceRows mine = SequenceRows::zig_zag(c.seq, part, c.parts);
      const Outputs3 got = rows.part_in_steps(part);
      EXPECT_LE(distance(got.out, rows_of(whole.out, c, mine, rows.queries())), tolerance) << part;
      EXPECT_LE(distance(got.lse, lse_of(whole.lse, c, mine)), tolerance) << part;
      EXPECT_LE(distance(got.dqkv, rows_of(whole_queries, c, mine, rows.queries())), tolerance) << part;
      const size_t each = got.dkeys.size() / static_cast<size_t>(c.parts);
      for (int step = 0; step < c.parts; ++step) {
        Values& sum = sums[(part - step + c.parts) % c.parts];
        sum.resize(each);
        for (size_t i = 0; i < each; ++i) sum[i] += got.dkeys[static_cast<size_t>(step) * each + i];
      }
    }
    for (const auto& [part, sum] : sums)
      EXPECT_LE(
          distance(sum, rows_of(whole_keys, c, SequenceRows::zig_zag(c.seq, part, c.parts), rows.keys())),
          tolerance)
          << part;
  });
}

// Runs smaller than a tile, of odd sizes, of whole blocks, and longer than a chunk of keys.
const Case kCases[] = {{1, 12, 1, 1, 8, 3},
                       {2, 16, 2, 2, 8, 4},
                       {2, 28, 4, 2, 16, 2, 0.2},
                       {1, 60, 3, 1, 24, 3, 0.2},
                       {1, 256, 2, 1, 16, 2},
                       {1, 1100, 2, 1, 8, 2, 0.1},
                       {1, 1280, 1, 1, 8, 4},
                       {1, 16, 1, 1, 8, 2, 0, {6, 10}},
                       {2, 48, 4, 2, 16, 4, 0.2, {1, 5, 30, 12}},
                       {1, 1100, 1, 1, 8, 2, 0.1, {600, 3, 497}},
                       {1, 1104, 2, 2, 8, 4, 0, {512, 512, 80}}};

TEST(AttentionRows, AreThoseOfTheWholeSequence) {
  for (const Case& c : kCases) {
    check_parts(c, DType::F64, 1e-12);
    check_parts(c, DType::F32, 2e-5);
  }
}

TEST(AttentionRows, AreThoseOfTheWholeSequenceIn16Bits) {
  for (const Case& c : {kCases[2], kCases[8]}) {
    check_parts(c, DType::BF16, 1e-2);
    check_parts(c, DType::F16, 2e-3);
  }
}

// Padding behind the lengths, also of whole runs.
TEST(AttentionRows, SeeAllKeysThatExist) {
  for (const Case& c :
       {Case{2, 16, 2, 2, 8, 2, 0.2, {}, {16, 3}}, Case{3, 64, 2, 1, 16, 4, 0, {}, {1, 40, 64}}}) {
    check_parts(c, DType::F64, 1e-12);
    check_parts(c, DType::F32, 2e-5);
    check_parts(c, DType::BF16, 1e-2);
    check_steps(c, DType::F64, 1e-12);
    check_steps(c, DType::F32, 2e-5);
  }
  for (const Case& c : {Case{1, 12, 1, 1, 8, 3, 0, {}, {12}}, Case{2, 1100, 2, 1, 8, 2, 0.1, {}, {270, 1}}})
    check_steps(c, DType::F64, 1e-12);
}

TEST(AttentionRows, AreThoseOfTheWholeSequenceInSteps) {
  for (const Case& c : kCases) {
    check_steps(c, DType::F64, 1e-12);
    check_steps(c, DType::F32, 2e-5);
  }
  for (const Case& c : {kCases[2], kCases[8]}) {
    check_steps(c, DType::BF16, 2e-2);
    check_steps(c, DType::F16, 4e-3);
  }
}

// Some key heads at a time.
TEST(AttentionRows, HaveTheSameBitsByGroupsOfHeads) {
  for (const Case& c : {Case{2, 28, 4, 2, 16, 2, 0.2}, Case{2, 48, 6, 3, 16, 4, 0.2, {1, 5, 30, 12}}})
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
      with_every_table([&](const OpTable& ops, Stream& stream) {
        const Rows rows(c, ops, stream, dtype);
        const SequenceRows mine = SequenceRows::zig_zag(c.seq, 1, c.parts);
        const Outputs3 all = rows.part(mine);
        for (const int64_t each : {1, 2}) {
          const Outputs3 some = rows.part(mine, each);
          EXPECT_EQ(some.out, all.out) << each;
          EXPECT_EQ(some.lse, all.lse) << each;
          EXPECT_EQ(some.dqkv, all.dqkv) << each;
          EXPECT_EQ(some.dkeys, rows.by_groups(all.dkeys, each)) << each;
        }
      });
}

}  // namespace
}  // namespace trifold::ops_test
