// Chat templates against transformers: tools/reference/chat_templates.py wrote the golden file.
#include "tokenize/chat/chat_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "files/crc32.h"
#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/token_offsets.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

const std::string kTemplates = test::test_data() + "/golden/chat_templates/";
const std::string kChatTokenizers = test::test_data() + "/golden/hf_tokenizers/";

using Ordered = nlohmann::ordered_json;

const Ordered& chat_cases() {
  static const Ordered kCases = Ordered::parse(read_file(kTemplates + "cases.json"));
  return kCases;
}

std::string crc_text(const void* data, size_t bytes) {
  return fmt::format("{:08x}", crc32_of(0, data, bytes));
}

// The variables of a conversation, as Conversation::variables has them.
Ordered variables_of(const Ordered& one) {
  Ordered variables = Ordered::object();
  if (one.contains("tools")) variables["tools"] = one["tools"];
  if (one.contains("chat_template_kwargs")) variables.update(one["chat_template_kwargs"]);
  return variables;
}

ChatTemplate golden_template(const std::string& name) {
  return ChatTemplate({read_file(kTemplates + name + ".jinja"), name, chat_cases().at("special_tokens"),
                       chat_cases().at("date").get<std::string>()});
}

class ChatTemplates : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const JinjaReport report = report_jinja(); !report.usable())
      GTEST_SKIP() << "the module of chat templates cannot be used: " << report.problem;
  }
  static std::vector<std::string> words_of(const std::string& line) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
  }
};

TEST_P(ChatTemplates, TextsAreThoseOfTransformers) {
  const ChatTemplate chat = golden_template(GetParam());
  const Ordered& lines = chat_cases().at("cases").at(GetParam());
  int64_t rendered = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Ordered& one = chat_cases().at("conversations").at(i);
    const std::vector<std::string> expected = words_of(lines[i].get<std::string>());
    for (const bool prompt : {false, true}) {
      std::string got = "error";
      try {
        const std::string text = chat.render(one["messages"], prompt, variables_of(one)).text;
        got = fmt::format("{}:{}", text.size(), crc_text(text.data(), text.size()));
        ++rendered;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
      }
      EXPECT_EQ(got, expected[prompt ? 1 : 0]) << "conversation " << i << ", prompt " << prompt;
    }
  }
  EXPECT_GE(rendered, 200);
}

// Where the template marks answers: the tokens, and the mask that says which of them the model writes.
TEST_P(ChatTemplates, MasksAreThoseOfTransformers) {
  const ChatTemplate chat = golden_template(GetParam());
  if (!chat.marks_answers()) return;
  const Ordered& lines = chat_cases().at("cases").at(GetParam());
  const Ordered& names = chat_cases().at("tokenizers");
  for (size_t k = 0; k < names.size(); ++k) {
    const HuggingFaceTokenizer tokenizer(kChatTokenizers + names[k].get<std::string>() + ".json");
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<std::string> expected = words_of(lines[i].get<std::string>());
      if (expected[0] == "error") continue;
      const Ordered& one = chat_cases().at("conversations").at(i);
      const RenderedChat rendered = chat.render(one["messages"], false, variables_of(one));
      std::vector<int32_t> ids;
      tokenizer.encode(rendered.text, ids);
      const std::vector<uint8_t> mask = tokens_in_spans(rendered.text, ids, rendered.answers, tokenizer);
      const std::string got =
          fmt::format("{}{}:{}", crc_text(ids.data(), ids.size() * sizeof(int32_t)),
                      crc_text(mask.data(), mask.size()), std::count(mask.begin(), mask.end(), 1));
      EXPECT_EQ(got, expected.at(2 + k)) << names[k] << ", conversation " << i << ":\n" << rendered.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ChatTemplates,
                         testing::Values("chatml", "deepseek", "gemma", "gpt_oss", "granite", "llama2",
                                         "llama3", "mistral", "phi3", "phi4", "qwen", "zephyr"),
                         [](const auto& info) { return std::string(info.param); });

using ChatTemplateErrors = ChatTemplates;

TEST_F(ChatTemplateErrors, NameTheLine) {
  const Ordered messages = {{{"role", "user"}, {"content", "hello"}}};
  const auto problem = [&](const std::string& text) {
    return error_of([&] { ChatTemplate({text, "t.jinja"}).render(messages, false); });
  };
  expect_has(problem("a\n{% for m in %}"), "the chat template t.jinja, line 2: ");
  expect_has(problem("a\n\n{{ raise_exception('only cats') }}"),
             "the chat template t.jinja, line 3: only cats");
  expect_has(problem("{{ messages[3].content + 'x' }}"), "the chat template t.jinja, line 1: ");
  expect_has(problem("{{ nothing.at.all }}"), "'nothing' is undefined");
  // Neither Python's insides nor files can be reached.
  expect_has(problem("{{ ''.__class__.__mro__ }}"), "unsafe");
  expect_has(problem("{% include '/etc/passwd' %}"), "no loader");
  expect_has(problem("{% set ns = namespace(_a=1) %}"), "begins with an underscore");
}

TEST_F(ChatTemplateErrors, EndlessLoopsOfRangeAreRefused) {
  expect_has(error_of([] {
               ChatTemplate({"{% for i in range(10000000) %}{% endfor %}", "t.jinja"})
                   .render(Ordered::array(), false);
             }),
             "Range too big");
}

TEST_F(ChatTemplateErrors, ThreadsMayRenderAtATime) {
  const ChatTemplate chat({"{% for m in messages %}{{ m.content }}|{% endfor %}", "t.jinja"});
  std::vector<std::string> texts(8);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < texts.size(); ++i)
      threads.emplace_back([&, i] {
        for (int n = 0; n < 50; ++n)
          texts[i] =
              chat.render(Ordered::array({{{"role", "user"}, {"content", std::to_string(i)}}}), false).text;
      });
  }
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(i) + "|");
}

// Which template a folder has. Byte tokens need no file, so the folder of tokenizer_model alone matters.
TEST(FindChatTemplate, PrefersTheFileOfItsOwn) {
  const TempDir dir;
  const ByteTokenizer bytes(true);
  DataConfig data;
  EXPECT_FALSE(find_chat_template(data, bytes));
  expect_has(error_of([&] { need_chat_template(data, bytes, "--task chat"); }),
             "--task chat needs a chat template, which the model does not have: name a file");
  data.tokenizer_model = dir.file("tokenizer.json");
  EXPECT_FALSE(find_chat_template(data, bytes));
  write_file(
      dir.file("tokenizer_config.json"),
      R"({"chat_template": "in the config", "eos_token": {"content": "</s>"}, "add_bos_token": true})");
  write_file(dir.file("special_tokens_map.json"), R"({"bos_token": "<s>", "eos_token": "not this"})");
  std::optional<ChatTemplateSource> found = find_chat_template(data, bytes);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text, "in the config");
  EXPECT_EQ(found->special_tokens.dump(), R"({"eos_token":"</s>","bos_token":"<s>"})");
  write_file(dir.file("chat_template.jinja"), "a file");
  EXPECT_EQ(find_chat_template(data, bytes)->text, "a file");
  write_file(dir.file("other.jinja"), "named");
  data.chat_template = dir.file("other.jinja");
  EXPECT_EQ(find_chat_template(data, bytes)->text, "named");
  data.chat_template = "missing";
  expect_has(error_of([&] { find_chat_template(data, bytes); }),
             "--chat-template missing: there is no such file, and the model's templates are default");
}

TEST(FindChatTemplate, ReadsListsOfNamedTemplates) {
  const TempDir dir;
  const ByteTokenizer bytes(true);
  DataConfig data;
  data.tokenizer_model = dir.file("tokenizer.json");
  write_file(
      dir.file("tokenizer_config.json"),
      R"({"chat_template": [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]})");
  EXPECT_EQ(find_chat_template(data, bytes)->text, "one");
  EXPECT_EQ(find_chat_template(data, bytes)->tools_text, "two");
  data.chat_template = "tool_use";
  EXPECT_EQ(find_chat_template(data, bytes)->text, "two");
  EXPECT_EQ(find_chat_template(data, bytes)->tools_text, "");
  data.chat_template.reset();
  write_file(dir.file("tokenizer_config.json"),
             R"({"chat_template": [{"name": "rag", "template": "three"}]})");
  expect_has(error_of([&] { find_chat_template(data, bytes); }), "name one, --chat-template rag");
}

TEST(ChatTemplateSource, IsNotJoinedIfOnlyOneMarksAnswers) {
  const std::string marks = "{%- generation -%}answer{%- endgeneration -%}";
  EXPECT_EQ((ChatTemplateSource{.text = marks, .where = "usual"}.joined()), marks);
  ChatTemplateSource source{
      .text = "plain", .where = "usual", .tools_text = marks, .tools_where = "with tools"};
  expect_has(error_of([&] { source.joined(); }),
             "of the chat templates usual and with tools only one marks answers by {% generation %}");
  source.text = marks;
  EXPECT_NE(source.joined().find("tools is defined"), std::string::npos);
}

}  // namespace
}  // namespace trifold
