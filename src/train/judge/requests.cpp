#include "train/judge/requests.h"

#include <algorithm>

#include "core/error.h"
#include "tokenize/unicode/unicode.h"
#include "train/judge/task_file.h"

namespace trifold {

namespace {

// The bytes of `text` without white space at its end.
size_t size_without_spaces(std::string_view text) {
  for (size_t end = text.size(); end > 0;) {
    const char32_t last = character_before(text, end);
    if (!is_python_space(last)) return end;
    std::string bytes;
    append_character(bytes, last);
    end -= bytes.size();
    text = text.substr(0, end);
  }
  return 0;
}

}  // namespace

std::vector<int32_t> RequestEncoder::encode(std::string_view text) const {
  tokenizer_.check_text(text);
  std::vector<int32_t> ids;
  tokenizer_.encode(text, ids);
  return ids;
}

ScoringRequest RequestEncoder::pair(std::string_view context, std::string_view continuation) const {
  ScoringRequest request;
  if (context.empty()) {
    request.tokens = encode(continuation);
    if (request.tokens.empty()) bad_input("the choice has no tokens");
    // A continuation that begins with the prefix has it already.
    if (request.tokens.front() != prefix_) request.tokens.insert(request.tokens.begin(), prefix_);
    request.scored = request.inputs();
  } else {
    const std::string_view kept = context.substr(0, size_without_spaces(context));
    if (kept.empty()) bad_input("the context is white space alone: leave it empty");
    request.tokens = encode(kept);
    const size_t before = request.tokens.size();
    if (before == 0) bad_input("the context has no tokens: leave it empty");
    // Even where a token spans the end of the context, the model reads the tokens of the context alone.
    const std::vector<int32_t> whole = encode(std::string(context).append(continuation));
    if (whole.size() > before)
      request.tokens.insert(request.tokens.end(), whole.begin() + static_cast<std::ptrdiff_t>(before),
                            whole.end());
    request.scored = static_cast<int64_t>(request.tokens.size() - before);
  }
  if (request.scored < 1) bad_input("the choice adds no token to the context: nothing can be scored");
  if (request.scored > most_inputs_)
    bad_input("the choice has {} tokens, but the model is given at most {}: shorten it", request.scored,
              most_inputs_);
  const int64_t extra = request.inputs() - most_inputs_;
  if (extra > 0) request.tokens.erase(request.tokens.begin(), request.tokens.begin() + extra);
  return request;
}

std::vector<ScoringRequest> RequestEncoder::rolling(std::string_view text) const {
  std::vector<int32_t> tokens = encode(text);
  if (tokens.empty()) bad_input("the text has no tokens: leave the line out");
  tokens.insert(tokens.begin(), prefix_);
  std::vector<ScoringRequest> requests;
  const auto last = static_cast<int64_t>(tokens.size()) - 1;  // tokens 1 to `last` are scored
  for (int64_t done = 0; done < last;) {
    const int64_t scored = std::min(most_inputs_, last - done);
    const int64_t end = done + scored;
    // Only the first request sees the prefix.
    const int64_t begin = done == 0 ? 0 : end - most_inputs_;
    requests.push_back({{tokens.begin() + begin, tokens.begin() + end + 1}, scored});
    done = end;
  }
  return requests;
}

}  // namespace trifold
