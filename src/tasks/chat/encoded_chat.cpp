#include "tasks/chat/encoded_chat.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "tokenize/token_offsets.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

using Json = nlohmann::ordered_json;

// The text of an answer's message, if it is one.
std::string_view content_of(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string()) return {};
  return content->get_ref<const std::string&>();
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(white_space_at_start(text));
  return text.substr(0, size_without_white_space_at_end(text));
}

size_t common_bytes(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
}

// Finds answers by rendering first messages alone. The text before answer i is that of the messages before it, with the
// beginning of an answer that the template adds if it is asked for one; the answer ends where the text of the messages
// up to it ends.
class PrefixSpans {
 public:
  PrefixSpans(const Conversation& conversation, const ChatTemplate& chat, const std::string& whole)
      : conversation_(conversation), chat_(chat), whole_(whole) {}

  Interval of(size_t answer) const {
    const std::string before = render(answer, true);
    const size_t begin = before.size();
    if (!std::string_view(whole_).starts_with(before)) refuse(answer);
    const size_t end = end_of(answer, begin);
    // White space behind the text that ends the turn belongs to the template.
    const std::string_view text = std::string_view(whole_).substr(begin, end - begin);
    const std::string_view kept = text.substr(0, size_without_white_space_at_end(text));
    const bool is_content = kept.ends_with(trimmed(content_of(conversation_.messages[answer])));
    return {static_cast<int64_t>(begin), static_cast<int64_t>(is_content ? end : begin + kept.size())};
  }

 private:
  // A template may write the last message in another way than the same message before others: around the answer, as
  // Qwen3's does with an empty thought, and behind it, as Phi-3's does with the end of the text. What both ways have in
  // common behind the content ends the answer.
  size_t end_of(size_t answer, size_t begin) const {
    if (answer + 1 == conversation_.messages.size()) return whole_.size();
    const std::string through = render(answer + 1, false);
    const size_t common = common_bytes(through, whole_);
    if (common == through.size() && common >= begin) return common;
    const std::string_view content = trimmed(content_of(conversation_.messages[answer]));
    const size_t here = whole_.find(content, begin), there = through.find(content, begin);
    if (content.empty() || here == std::string::npos || there == std::string::npos) refuse(answer);
    const std::string_view after = std::string_view(whole_).substr(here + content.size());
    size_t end = common_bytes(after, std::string_view(through).substr(there + content.size()));
    // The names of two tokens, such as <|user|> and <|endoftext|>, may begin with the same characters.
    const size_t open = after.substr(0, end).find_last_of("<[");
    if (open != std::string_view::npos &&
        after.substr(open, end - open).find_first_of(">]") == std::string_view::npos)
      end = open;
    return here + content.size() + end;
  }

  std::string render(size_t messages, bool prompt) const {
    const auto& all = conversation_.messages;
    const Json first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(messages));
    return chat_.render(first, prompt, conversation_.variables).text;
  }

  [[noreturn]] void refuse(size_t answer) const {
    bad_input(
        "the chat template {} writes the messages before message {} differently when more follow, so that the answer "
        "cannot be found: put the answers between {{% generation %}} and {{% endgeneration %}} in the template",
        chat_.source().where, answer + 1);
  }

  const Conversation& conversation_;
  const ChatTemplate& chat_;
  const std::string& whole_;
};

// The parts of `spans` that lie behind byte `from`.
std::vector<Interval> behind(const std::vector<Interval>& spans, int64_t from) {
  std::vector<Interval> kept;
  for (const Interval& span : spans)
    if (span.end > from) kept.push_back({std::max(span.begin, from), span.end});
  return kept;
}

}  // namespace

int64_t EncodedChat::answer_tokens() const { return std::count(learned.begin(), learned.end(), 1); }

RenderedChat render_answers(const Conversation& conversation, const ChatTemplate& chat) {
  try {
    RenderedChat rendered = chat.render(conversation.messages, false, conversation.variables);
    const PrefixSpans spans(conversation, chat, rendered.text);
    if (chat.marks_answers(conversation.variables)) {
      if (conversation.answers_from > 0)
        rendered.answers = behind(rendered.answers, spans.of(conversation.answers_from).begin);
      return rendered;
    }
    rendered.answers.clear();
    for (size_t i = conversation.answers_from; i < conversation.messages.size(); ++i)
      if (conversation.messages[i].value("role", "") == kAnswerRole) rendered.answers.push_back(spans.of(i));
    return rendered;
  } catch (Error& error) {
    error.add_context(conversation.where);
    throw;
  }
}

EncodedChat encode_chat(const Conversation& conversation, const ChatTemplate& chat,
                        const Tokenizer& tokenizer) {
  const RenderedChat rendered = render_answers(conversation, chat);
  EncodedChat encoded;
  try {
    tokenizer.check_text(rendered.text);
    tokenizer.encode(rendered.text, encoded.tokens);
  } catch (Error& error) {
    error.add_context(conversation.where);
    throw;
  }
  encoded.learned = tokens_in_spans(rendered.text, encoded.tokens, rendered.answers, tokenizer);
  return encoded;
}

EncodedChat encode_prompt(const PromptAnswer& text, const Tokenizer& tokenizer) {
  EncodedChat encoded;
  PieceState state;
  try {
    for (const std::string* part : {&text.prompt, &text.answer}) {
      tokenizer.check_text(*part);
      if (!part->empty()) tokenizer.encode_piece(*part, state, encoded.tokens);
      encoded.learned.resize(encoded.tokens.size(), part == &text.answer ? 1 : 0);
    }
  } catch (Error& error) {
    error.add_context(text.where);
    throw;
  }
  if (const auto end = tokenizer.eod()) {
    encoded.tokens.push_back(*end);
    encoded.learned.push_back(1);
  }
  return encoded;
}

}  // namespace trifold
