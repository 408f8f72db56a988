// Conversations: their files, their tokens, packing, and samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/read_ahead.h"
#include "support/files.h"
#include "tasks/chat/chat_samples.h"
#include "tasks/chat/conversations.h"
#include "tasks/chat/encoded_chat.h"
#include "tasks/chat/packing.h"

namespace trifold::test {
namespace {

std::vector<Conversation> conversations_in(const std::string& text) {
  const TempDir dir;
  write_file(dir.file("chats.jsonl"), text);
  return read_conversations(dir.file("chats.jsonl"));
}

TEST(Conversations, AreReadInEveryForm) {
  const std::vector<Conversation> all = conversations_in(
      R"({"messages": [{"role": "user", "content": "a"}, {"content": "b", "role": "assistant"}], "tools": "[1]"}

{"system": "s", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
{"instruction": "a", "input": "c", "output": "b", "chat_template_kwargs": {"x": 1}}
{"prompt": "a", "completion": "b"}
{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "z"}, {"role": "user", "content": "a"}], "answer": [{"role": "assistant", "content": "b"}]}
)");
  ASSERT_EQ(all.size(), 5);
  EXPECT_EQ(all[0].messages.dump(), R"([{"role":"user","content":"a"},{"content":"b","role":"assistant"}])");
  EXPECT_EQ(all[0].variables.dump(), R"({"tools":[1]})");
  EXPECT_EQ(
      all[1].messages.dump(),
      R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  expect_has(all[1].where, "chats.jsonl, line 3");
  EXPECT_EQ(all[2].messages.dump(),
            R"([{"role":"user","content":"a\nc"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(all[2].variables.dump(), R"({"x":1})");
  EXPECT_EQ(all[3].messages.dump(), R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(all[4].answers_from, 3);
  EXPECT_EQ(conversations_in(R"([{"instruction": "a", "output": "b"},
                                 {"prompt": "a", "completion": "b"}])")
                .size(),
            2);
}

TEST(Conversations, NameTheLineOfAMistake) {
  const std::string good = R"({"prompt": "a", "completion": "b"})";
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"[1]", "is not a JSON object"},
           {"{\"messages\": ", "line 2: not JSON: "},
           {R"({"text": "x"})", "one of {\"messages\": [...]}"},
           {R"({"messages": []})", "has no message of the role \"assistant\""},
           {R"({"messages": [{"role": "user", "content": "a"}]})",
            "has no message of the role \"assistant\""},
           {R"({"messages": [{"role": "assitant", "content": "a"}]})", "message 1 has the role 'assitant'"},
           {R"({"messages": [{"role": "user"}]})", "message 1 has no \"content\""},
           {R"({"messages": [{"role": "user", "content": 7}]})", "\"content\" of message 1 is not a string"},
           {R"({"messages": "hello"})", "\"messages\" is not a list"},
           {R"({"conversations": [{"from": "cat", "value": "a"}]})", "message 1 is from 'cat'"},
           {R"({"instruction": "a"})", "no field \"output\""},
           {R"({"prompt": "a", "completion": 5})", "\"completion\" is neither a string nor"}}) {
    const std::string file = good + "\n" + line + "\n";
    const std::string text = error_of([&] { conversations_in(file); });
    expect_has(text, "line 2");
    expect_has(text, message);
  }
  expect_has(error_of([] { conversations_in("\n"); }), "holds no conversation");
}

TEST(Prompts, AreReadAndEndWithTheDocument) {
  const TempDir dir;
  write_file(dir.file("p.jsonl"), R"({"prompt": "1+1=", "completion": "2"}
{"instruction": "add", "input": "1 1", "output": "2"}
{"text": "all"}
)");
  const std::vector<PromptAnswer> all = read_prompts(dir.file("p.jsonl"));
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[1].prompt, "add\n1 1\n");
  const EncodedChat first = encode_prompt(all[0], ByteTokenizer(true));
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{'1', '+', '1', '=', '2', 0}));
  EXPECT_EQ(first.learned, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(encode_prompt(all[2], ByteTokenizer(true)).answer_tokens(), 4);
  write_file(dir.file("p.jsonl"), R"({"messages": [{"role": "user", "content": "a"}]})");
  expect_has(error_of([&] { read_prompts(dir.file("p.jsonl")); }),
             "line 1: a conversation needs a chat template");
}

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string learned_text(const std::string& turns, const std::string& record) {
  const ChatTemplate chat({turns, "t.jinja"});
  const Conversation one = conversations_in(record).at(0);
  const RenderedChat rendered = render_answers(one, chat);
  std::string learned;
  for (const Interval& span : rendered.answers)
    learned += rendered.text.substr(static_cast<size_t>(span.begin), static_cast<size_t>(span.size())) + "|";
  return learned;
}

class ChatAnswers : public testing::Test {
 protected:
  void SetUp() override {
    if (const JinjaReport report = report_jinja(); !report.usable())
      GTEST_SKIP() << "the module of chat templates cannot be used: " << report.problem;
  }
};

TEST_F(ChatAnswers, AreFoundWithAndWithoutTags) {
  const std::string two =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b "},
          {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})";
  const std::string line = std::string(two).erase(two.find('\n'), 1);
  EXPECT_EQ(learned_text(kTurns, line), "b <end>|d<end>|");
  const std::string tagged =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>"
      "{% endgeneration %}{% else %}{{ m.content }}<end>{% endif %}\n{% endfor %}";
  EXPECT_EQ(learned_text(tagged, line), "b <end>|d<end>|");
  // Earlier answers of a prompt are not learned.
  const std::string prompt =
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "completion": "d"})";
  EXPECT_EQ(learned_text(kTurns, prompt), "d<end>|");
  EXPECT_EQ(
      learned_text(std::string(tagged) + "{% if add_generation_prompt %}<assistant>{% endif %}", prompt),
      "d<end>|");
  // What a template writes otherwise for the last message: an empty thought before it, or the end of the text behind it.
  const std::string thought =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
      "{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(learned_text(thought, line), "b <end>|<think></think>d<end>|");
  const std::string closed =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% else %}<usual end>{% endif %}";
  EXPECT_EQ(learned_text(closed, line), "b <end>|d<end>\n<usual end>|");
  // A template without an end of the turn keeps the answer's own white space.
  EXPECT_EQ(learned_text("{% for m in messages %}{{ m.content }}\n{% endfor %}", line), "b \n|d\n|");
}

TEST_F(ChatAnswers, AreRefusedIfEarlierTextChanges) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const std::string counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  expect_has(error_of([&] { learned_text(counts, line); }), "put the answers between {% generation %}");
}

TEST(Packing, FitsBestAndDependsOnlyOnLengthsAndSeed) {
  std::vector<int64_t> lengths;
  for (uint32_t i = 0; i < 500; ++i) lengths.push_back(1 + philox_word(philox_key(3, "lengths"), i) % 60);
  const auto packed = pack_best_fit(lengths, 64, 7);
  EXPECT_EQ(packed, pack_best_fit(lengths, 64, 7));
  EXPECT_NE(packed, pack_best_fit(lengths, 64, 8));
  std::set<int64_t> seen;
  for (const auto& sample : packed) {
    int64_t tokens = 0;
    for (const int64_t sequence : sample) {
      EXPECT_TRUE(seen.insert(sequence).second);
      tokens += lengths[static_cast<size_t>(sequence)];
    }
    EXPECT_LE(tokens, 64);
  }
  EXPECT_EQ(std::ssize(seen), 500);
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LE(std::ssize(packed) * 64, all + all / 20);  // within 5 % of full
  // The least room that is enough: 6 leaves 4, 7 leaves 3, so 3 goes to 7 and 4 to 6.
  EXPECT_EQ(pack_best_fit(std::vector<int64_t>{6, 7, 4, 3}, 10, 1).size(), 2);
  expect_has(error_of([] { pack_best_fit(std::vector<int64_t>{11}, 10, 1); }, ErrorKind::Failure),
             "11 tokens does not fit");
}

EncodedChat chat_of(std::vector<int32_t> tokens, std::vector<uint8_t> learned) {
  return {std::move(tokens), std::move(learned)};
}

std::shared_ptr<PackedChats> three_chats() {
  auto packed = std::make_shared<PackedChats>();
  packed->chats = {chat_of({5, 6, 7}, {0, 1, 1}), chat_of({8, 9}, {0, 1}),
                   chat_of({1, 2, 3, 4}, {1, 0, 0, 1})};
  packed->samples = {{0, 1}, {2}};
  packed->seq_length = 6;
  packed->separate = true;
  return packed;
}

template <class T>
std::vector<T> row_of(const Tensor& tensor, int64_t row) {
  const int64_t size = tensor.dim(1);
  return {tensor.as<T>() + row * size, tensor.as<T>() + (row + 1) * size};
}

TEST(ChatSamplesTest, EveryConversationIsADocument) {
  const ChatSamples source(three_chats(), 1, false, 0);
  BatchBuffer buffer(source, 2);
  Batch& batch = buffer.batch();
  source.read(batch, 0);
  EXPECT_EQ(row_of<int32_t>(batch.tokens, 0), (std::vector<int32_t>{5, 6, 7, 8, 9, 0}));
  EXPECT_EQ(row_of<int32_t>(batch.labels, 0), (std::vector<int32_t>{6, 7, 0, 9, 0, 0}));
  EXPECT_EQ(row_of<float>(batch.loss_weight, 0), (std::vector<float>{1, 1, 0, 1, 0, 0}));
  EXPECT_EQ(row_of<int32_t>(batch.positions, 0), (std::vector<int32_t>{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(row_of<int32_t>(batch.document_begin, 0), (std::vector<int32_t>{0, 0, 0, 3, 3, 5}));
  EXPECT_EQ(row_of<int32_t>(batch.padding, 0), (std::vector<int32_t>{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(row_of<float>(batch.loss_weight, 1), (std::vector<float>{0, 0, 1, 0, 0, 0}));
}

TEST(ChatSamplesTest, PassesHaveEverySampleInAnotherOrder) {
  auto packed = std::make_shared<PackedChats>();
  packed->seq_length = 2;
  for (int32_t i = 0; i < 40; ++i) {
    packed->chats.push_back(chat_of({i, 1}, {0, 1}));
    packed->samples.push_back({i});
  }
  const ChatSamples source(packed, 2, true, 11), again(packed, 2, true, 11);
  BatchBuffer buffer(source, 80), other(again, 80);
  source.read(buffer.batch(), 0);
  again.read(other.batch(), 0);
  std::vector<int32_t> order;
  for (int64_t b = 0; b < 80; ++b) {
    order.push_back(buffer.batch().tokens.as<int32_t>()[2 * b]);
    EXPECT_EQ(other.batch().tokens.as<int32_t>()[2 * b], order.back());
  }
  const std::vector<int32_t> first(order.begin(), order.begin() + 40),
      second(order.begin() + 40, order.end());
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 40);
  EXPECT_EQ(std::set<int32_t>(second.begin(), second.end()).size(), 40);
  EXPECT_EQ(source.bookmark(3), again.bookmark(0));
  packed->chats[0].learned[1] = 0;
  const ChatSamples changed(packed, 2, true, 11);
  expect_has(error_of([&] { changed.open_at(source.bookmark(0)); }),
             "the checkpoint was trained on 40 conversations");
}

}  // namespace
}  // namespace trifold::test
