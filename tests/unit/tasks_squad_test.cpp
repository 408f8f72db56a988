// SQuAD: its files, its windows, the search for the best span, and its scores, held against values that
// SQuAD's own rules give.
#include "tasks/squad.h"

#include <set>

#include "data/read_ahead.h"
#include "support/files.h"
#include "tasks/squad_score.h"
#include "tasks/squad_windows.h"

namespace trifold::test {
namespace {

TEST(SquadScore, NormalisesAsSquadDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"The  Cat!", "cat"},
      {"a an the", ""},
      {"theatre, another; bathe", "theatre another bathe"},
      {"U.S.A.", "usa"},
      {"the-cat", "thecat"},  // signs go before articles are looked for
      {"a\xC2\xA0"
       "b\t c",
       "b c"},
      {"\xC3\x89T\xC3\x89 \xD0\x9C\xD0\xB8\xD1\x80", "\xC3\xA9t\xC3\xA9 \xD0\xBC\xD0\xB8\xD1\x80"},
      {"\xC3\xA9"
       "a a\xC3\xA9",
       "\xC3\xA9"
       "a a\xC3\xA9"},  // letters around: no article
      {"the\xE2\x80\x93"
       "an",
       "\xE2\x80\x93"},  // a dash is no letter
      {"$1,000.50", "100050"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(normalised_answer(text), expected) << text;
}

TEST(SquadScore, ExactMatchAndF1) {
  EXPECT_EQ(exact_match("The Denver Broncos.", "denver broncos"), 1);
  EXPECT_EQ(exact_match("Denver", "Denver Broncos"), 0);
  EXPECT_DOUBLE_EQ(word_f1("Denver", "the Denver Broncos", false), 2.0 / 3);
  EXPECT_DOUBLE_EQ(word_f1("b b c", "b c c", false), 2.0 / 3);  // each word as often as it stands
  EXPECT_EQ(word_f1("x", "y", true), 0);
  EXPECT_EQ(word_f1("", "", true), 1);
  EXPECT_EQ(word_f1("the", "", true), 1);
  EXPECT_EQ(word_f1("", "", false), 0);
  EXPECT_EQ(word_f1("x", "", true), 0);
}

Squad squad_of(const std::string& text) {
  const TempDir dir;
  write_file(dir.file("s.json"), text);
  return read_squad(dir.file("s.json"));
}

// "naïve" has a letter of two bytes before the answers.
const char* const kVersion2 = R"({"version": "v2.0", "data": [{"title": "t", "paragraphs": [
  {"context": "A na\u00efve cat sat on the old mat.", "qas": [
    {"id": "q1", "question": "Who sat?", "is_impossible": false,
     "answers": [{"text": "na\u00efve cat", "answer_start": 2}, {"text": "cat", "answer_start": 8}]},
    {"id": "q2", "question": "Who flew?", "is_impossible": true, "answers": [],
     "plausible_answers": [{"text": "cat", "answer_start": 8}]}]}]}]})";

TEST(Squad, AnswersArePlacedInBytes) {
  const Squad squad = squad_of(kVersion2);
  ASSERT_EQ(squad.questions.size(), 2U);
  EXPECT_TRUE(squad.has_unanswerable);
  const SquadAnswer& second = squad.questions[0].answers[1];
  EXPECT_EQ(squad.contexts[0].substr(static_cast<size_t>(second.begin), 3), "cat");
  EXPECT_EQ(second.begin, 9);
  EXPECT_TRUE(squad.questions[1].answers.empty());
}

TEST(Squad, ReportsProblems) {
  const std::string text = kVersion2;
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return error_of([&] { squad_of(changed); });
  };
  EXPECT_NE(
      refusal("\"answer_start\": 8", "\"answer_start\": 7").find("question q1: the answer 'cat' is not"),
      std::string::npos);
  EXPECT_NE(refusal("\"answer_start\": 8", "\"answer_start\": 99").find("begins at character 99 of"),
            std::string::npos);
  EXPECT_NE(refusal("\"context\"", "\"text\"").find("s.json is not a SQuAD file"), std::string::npos);
}

TEST(SquadScore, TakesTheBestOfTheAnswersAndCountsQuestionsWithout) {
  const Squad squad = squad_of(kVersion2);
  const SquadScore right = score_answers(squad, {{"q1", "the cat"}, {"q2", ""}});
  EXPECT_EQ(right.exact, 100);
  EXPECT_EQ(right.f1, 100);
  const SquadScore half = score_answers(squad, {{"q1", "old cat"}, {"q2", "cat"}});
  EXPECT_EQ(half.exact, 0);
  EXPECT_DOUBLE_EQ(half.f1, 100 * (2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(half.answerable_f1, 100 * 2.0 / 3);
  EXPECT_EQ(half.no_answer_f1, 0);
  EXPECT_EQ(score_answers(squad, {}).exact, 0);
}

class Windows : public testing::Test {
 protected:
  Windows() : squad_(squad_of(kVersion2)), windows_(squad_, ByteTokenizer(), BertTokens(256), {28, 7, 4}) {}
  // Logits of zero but for some [CLS] and places of the context, in the windows that show them.
  std::vector<double> logits() const { return std::vector<double>(windows_.windows().size() * 56, 0.0); }
  void raise(std::vector<double>& logits, size_t question, int64_t token, bool end, double by) const {
    for (size_t w = 0; w < windows_.windows().size(); ++w) {
      const AnswerWindow& window = windows_.windows()[w];
      if (window.question != question || token < window.first || token >= window.first + window.count)
        continue;
      logits[w * 56 + (end ? 28 : 0) + static_cast<size_t>(window.offset + token - window.first)] += by;
    }
  }
  Squad squad_;
  SquadWindows windows_;
};

// The context has 32 bytes; a question of 4 leaves room for 21.
TEST_F(Windows, OverlapAndHoldTheAnswerWhole) {
  ASSERT_EQ(windows_.windows().size(), 6U);
  for (size_t w = 0; w < 3; ++w) {
    const AnswerWindow& window = windows_.windows()[w];
    const TaskSample& sample = windows_.samples()[w];
    EXPECT_EQ(window.first, 7 * static_cast<int64_t>(w));
    EXPECT_EQ(window.count, w < 2 ? 21 : 18);
    EXPECT_EQ(sample.tokens[0], 257);
    EXPECT_EQ(sample.tokens[1], 'W');
    EXPECT_EQ(sample.tokens[5], 258);
    EXPECT_EQ(sample.second, 6);
    EXPECT_EQ(sample.tokens.back(), 258);
    // "naïve cat" is bytes 2 to 11.
    EXPECT_EQ(sample.begin, w == 0 ? 8 : 0);
    EXPECT_EQ(sample.end, w == 0 ? 17 : 0);
    EXPECT_EQ(windows_.samples()[w + 3].begin, 0) << "there is no answer";
  }
  EXPECT_EQ(windows_.text(squad_, 0, 9, 11), "cat");
  std::vector<int> shown(32, 0);
  for (size_t w = 0; w < 3; ++w)
    for (size_t i = 0; i < windows_.windows()[w].best.size(); ++i)
      shown[static_cast<size_t>(windows_.windows()[w].first) + i] += windows_.windows()[w].best[i] ? 1 : 0;
  EXPECT_EQ(shown, std::vector<int>(32, 1)) << "each token is shown best in one window";
  EXPECT_FALSE(windows_.windows()[1].best[0]);
}

TEST_F(Windows, TheBestSpanIsFoundAndNoLongerThanAllowed) {
  std::vector<double> all = logits();
  raise(all, 0, 9, false, 5);
  raise(all, 0, 11, true, 4);
  raise(all, 0, 30, true, 6);  // further than is allowed
  raise(all, 0, 5, true, 8);   // ends before it begins
  raise(all, 0, 2, false, -9);
  for (size_t w = 0; w < 3; ++w) all[w * 56] = static_cast<double>(w);  // [CLS]
  const std::vector<BestAnswer> answers = best_answers(squad_, windows_, all, 28, 3);
  EXPECT_EQ(answers[0].text, "cat");
  EXPECT_EQ(answers[0].score, 9);
  EXPECT_EQ(answers[0].null_score, 0);
  EXPECT_TRUE(answers[0].found);
  EXPECT_EQ(best_answers(squad_, windows_, all, 28, 33)[0].score, 9) << "a window shows 21 tokens only";
  EXPECT_EQ(answers[1].score, 0);
}

TEST(TextPlaces, UnitsAreWordsAndSigns) {
  const std::string text = "Is it (1999)?";
  class Counting final : public Tokenizer {  // one id a unit, its length
   public:
    int64_t vocab_size() const override { return 100; }
    std::optional<int32_t> eod() const override { return {}; }
    std::string fingerprint() const override { return {}; }
    void encode(std::string_view unit, std::vector<int32_t>& ids) const override {
      ids.push_back(static_cast<int32_t>(unit.size()));
    }
    std::string decode(std::span<const int32_t>) const override { return {}; }
  };
  const TokenSpans tokens = tokenize_with_spans(text, Counting());
  EXPECT_EQ(tokens.ids, (std::vector<int32_t>{2, 2, 1, 4, 1, 1}));
  EXPECT_EQ(text.substr(static_cast<size_t>(tokens.bytes[3].begin), 4), "1999");
  // Signs of any script stand alone, Chinese characters too; any white space parts units.
  const auto lengths = [](std::string_view of) { return tokenize_with_spans(of, Counting()).ids; };
  EXPECT_EQ(lengths("\u201ca\u201d 1995\u20132000"), (std::vector<int32_t>{3, 1, 3, 4, 3, 4}));
  EXPECT_EQ(lengths("a\u00a0b \u6771\u4eac"), (std::vector<int32_t>{1, 1, 3, 3}));
  EXPECT_EQ(tokenize_with_spans("ab", ByteTokenizer()).bytes[1].begin, 1);
}

// A tokenizer with the four tokens of BERT or RoBERTa, which begin with `opening`, among its own.
TEST(BertTokens, AreTheTokenizersWhereItHasThem) {
  class WithMarks final : public Tokenizer {
   public:
    explicit WithMarks(char opening = '[') : opening_(opening) {}
    int64_t vocab_size() const override { return 200; }
    std::optional<int32_t> eod() const override { return {}; }
    std::string fingerprint() const override { return {}; }
    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
      if (text[0] != opening_) ids.push_back(1);
      ids.push_back(text == "[PAD]" ? 0 : text[1]);
    }
    std::string decode(std::span<const int32_t>) const override { return {}; }

   private:
    char opening_;
  };
  const BertTokens own((WithMarks()));
  EXPECT_EQ(own.pad, 0);
  EXPECT_EQ(own.mask, 'M');
  EXPECT_EQ(bert_vocabulary(WithMarks()), 200);
  const BertTokens roberta(WithMarks('<'));
  EXPECT_EQ((std::vector<int32_t>{roberta.pad, roberta.cls, roberta.sep, roberta.mask}),
            (std::vector<int32_t>{'p', 's', '/', 'm'}));
  EXPECT_EQ(BertTokens(ByteTokenizer()).pad, 256);
  EXPECT_EQ(bert_vocabulary(ByteTokenizer()), 260);
}

TEST(LabeledText, TablesAndJsonLines) {
  const TempDir dir;
  write_file(dir.file("a.tsv"), "label\ttext\ttext_b\nyes\tone\ttwo\r\n\nno\tthree\t\n");
  const auto texts = read_labeled_texts(dir.file("a.tsv"));
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, "one");
  EXPECT_EQ(*texts[0].other, "two");
  EXPECT_EQ(classes_of(texts), (std::vector<std::string>{"no", "yes"}));
  write_file(dir.file("b.jsonl"), "{\"text\": \"x\", \"label\": 10}\n{\"text\": \"y\", \"label\": 9}\n");
  EXPECT_EQ(classes_of(read_labeled_texts(dir.file("b.jsonl"))), (std::vector<std::string>{"9", "10"}));
  write_file(dir.file("c.tsv"), "text\tlabel\nonly one\n");
  EXPECT_NE(error_of([&] {
              read_labeled_texts(dir.file("c.tsv"));
            }).find("c.tsv, line 2: the first line names 2 columns, this one has 1"),
            std::string::npos);
  write_file(dir.file("d.tsv"), "sentence\tlabel\n");
  EXPECT_NE(error_of([&] { read_labeled_texts(dir.file("d.tsv")); }).find("among them 'text'"),
            std::string::npos);
}

// As transformers' longest_first: lengths of both texts before and after, with room for 7 tokens.
TEST(TaskSamples, CutPairsLikeTransformers) {
  for (const auto& [first, second, kept_first, kept_second] : {std::array{3, 3, 3, 3},
                                                               {3, 5, 3, 4},
                                                               {9, 2, 5, 2},
                                                               {2, 9, 2, 5},
                                                               {9, 8, 4, 3},
                                                               {8, 9, 3, 4},
                                                               {9, 9, 3, 4},
                                                               {4, 4, 3, 4},
                                                               {5, 4, 4, 3}}) {
    const std::vector<LabeledText> text{
        {std::string(static_cast<size_t>(first), 'a'), std::string(static_cast<size_t>(second), 'b'), "x"}};
    const std::vector<int32_t> tokens =
        class_samples(text, {"x"}, ByteTokenizer(), BertTokens(256), 10)[0].tokens;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 'a'), kept_first) << first << " " << second;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 'b'), kept_second) << first << " " << second;
  }
  const std::vector<LabeledText> alone{{std::string(20, 'a'), {}, "x"}};
  EXPECT_EQ(class_samples(alone, {"x"}, ByteTokenizer(), BertTokens(256), 10)[0].tokens.size(), 10U);
}

// Classes that transformers names by default, and labels as GLUE has them.
TEST(TaskSamples, TakeANumberForADefaultNameOfAClass) {
  const std::vector<LabeledText> texts{{"a", {}, "1"}, {"b", {}, "LABEL_0"}, {"c", {}, "0"}};
  const auto samples = class_samples(texts, {"LABEL_0", "LABEL_1"}, ByteTokenizer(), BertTokens(256), 9);
  EXPECT_EQ(samples[0].label, 1);
  EXPECT_EQ(samples[1].label, 0);
  EXPECT_EQ(samples[2].label, 0);
  EXPECT_THROW(class_samples({{"a", {}, "2"}}, {"LABEL_0", "LABEL_1"}, ByteTokenizer(), BertTokens(256), 9),
               Error);
}

TEST(TaskSamples, PadAndGoThroughAllInEveryPass) {
  std::vector<LabeledText> texts;
  for (const char* word : {"aa", "b", "cccccc"}) texts.push_back({word, "zz", std::string(1, word[0])});
  const BertTokens special(256);
  const auto list = class_samples(texts, {"a", "b", "c"}, ByteTokenizer(), special, 9);
  EXPECT_EQ(list[2].tokens, (std::vector<int32_t>{257, 'c', 'c', 'c', 'c', 258, 'z', 'z', 258}));
  EXPECT_EQ(list[2].second, 6);
  EXPECT_THROW(class_samples(texts, {"a", "b"}, ByteTokenizer(), special, 9), Error);
  const TaskSamples source(list, special.pad, 9, 4, true, 7);
  ASSERT_EQ(source.samples(), 12);
  BatchBuffer buffer(3, 9);
  std::set<std::vector<int32_t>> orders;
  for (int64_t pass = 0; pass < 4; ++pass) {
    Batch& batch = buffer.batch();
    source.read(batch, 3 * pass);
    const auto* labels = batch.pair_labels.as<int32_t>();
    orders.insert({labels[0], labels[1], labels[2]});
    EXPECT_EQ(labels[0] + labels[1] + labels[2], 3);
    for (int64_t b = 0; b < 3; ++b) {
      const int32_t length = batch.lengths.as<int32_t>()[b];
      EXPECT_EQ(batch.tokens.as<int32_t>()[b * 9 + length - 1], special.sep);
      if (length < 9) {
        EXPECT_EQ(batch.tokens.as<int32_t>()[b * 9 + length], special.pad);
      }
      EXPECT_EQ(batch.token_types.as<int32_t>()[b * 9 + length - 1], 1);
      EXPECT_EQ(batch.token_types.as<int32_t>()[b * 9 + 1], 0);
    }
  }
  EXPECT_GT(orders.size(), 1U);
}

}  // namespace
}  // namespace trifold::test
