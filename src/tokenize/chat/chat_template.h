// ChatTemplate writes a conversation as the text on which a chat model was trained. Templates are programs in the
// language Jinja, which come with a model. They are rendered as by transformers' apply_chat_template, with the same
// library (decision 0040), through the module trifold_jinja.so (tokenize/chat/jinja_module.h).
//
//   const ChatTemplate chat(find_chat_template(data, tokenizer));
//   const RenderedChat prompt = chat.render(messages, true);     // up to where the model answers
//   tokenizer.encode(prompt.text, ids);                          // its special tokens included
//
// A template decides where special tokens stand, among them the one that begins a text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "core/interval.h"
#include "core/module.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The file in which a model's folder, and a checkpoint, keep the template.
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

// A template as it was found.
struct ChatTemplateSource {
  std::string text;
  std::string where;  // for messages: "llama/chat_template.jinja"
  // What the template may ask for besides messages: "bos_token", "eos_token" and the model's other special tokens.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
  std::string today = {};  // YYYY-MM-DD; empty: the present day
  // The template for conversations with tools, if the model has another; empty: the same.
  std::string tools_text = {}, tools_where = {};

  // One template that writes what both write: for a file. BadInput if {% generation %} is in one of them alone, because
  // a file has it for all conversations or for none.
  std::string joined() const;
};

// The template that `data` name by a file or by the name of one of the model's templates (--chat-template), or else the
// model's own, in the folder of its tokenizer's file: chat_template.jinja, then the field chat_template of
// tokenizer_config.json, a text or a list of named templates, of which "default" is taken, and "tool_use" for
// conversations with tools, as by transformers. nullopt if there is none;
// BadInput for a template that is named and does not exist, or cannot be read.
std::optional<ChatTemplateSource> find_chat_template(const DataConfig& data, const Tokenizer& tokenizer);
// Finds the template as above. BadInput if there is none: `reader`, such as "--task chat", needs one.
ChatTemplateSource need_chat_template(const DataConfig& data, const Tokenizer& tokenizer,
                                      const std::string& reader);

struct RenderedChat {
  std::string text;  // UTF-8
  // The bytes of `text` that the template marks as the model's by the tags {% generation %}, in order.
  std::vector<Interval> answers;
};

class ChatTemplate {
 public:
  // BadInput, with the line, for a template with a mistake in its syntax; Failure, with the remedy, if the module or a
  // library that it needs is missing.
  explicit ChatTemplate(ChatTemplateSource source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `messages` are objects with "role" and "content", and whatever else the template reads. `variables`: further values
  // by name, such as {"tools": [...], "enable_thinking": false}; they win over special tokens. Members keep their order.
  // With "tools" other than null, the template for tools is taken.
  // BadInput, with the line, if the template refuses the messages or fails. Callable from several threads at a time.
  RenderedChat render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;

  // Whether the template for these variables has the tags {% generation %}.
  bool marks_answers(const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;
  const ChatTemplateSource& source() const { return source_; }

 private:
  struct Compiled;
  const Compiled& compiled_for(const nlohmann::ordered_json& variables) const;

  ChatTemplateSource source_;
  std::unique_ptr<Compiled> usual_, with_tools_;  // with_tools_ is null if it is the same
};

// Whether templates can be rendered here: for a report about this installation.
struct JinjaReport {
  ModuleReport module;
  std::string library;  // the versions of Jinja2 and Python, if they can be used
  std::string problem;  // why Python cannot be used although the module exists
  bool usable() const { return !library.empty(); }
};
JinjaReport report_jinja();

// Today's date as YYYY-MM-DD, in local time.
std::string todays_date();

}  // namespace trifold
