// Conversations as tokens, with a mark for every token that the model learns to write.
#pragma once

#include <cstdint>
#include <vector>

#include "core/interval.h"
#include "tasks/chat/conversations.h"
#include "tokenize/chat/chat_template.h"
#include "tokenize/tokenizer.h"

namespace trifold {

struct EncodedChat {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;  // [token] 1: a token of an answer
  int64_t answer_tokens() const;
};

// The conversation as the template writes it, and the bytes of its answers: the bytes between the template's tags
// {% generation %} if it has them, otherwise what the template adds to the messages before an answer, when it is asked
// for one, until the answer's end, including the text that ends the turn. BadInput, naming the conversation, if the
// template refuses it, or if it has no tags and writes earlier messages differently in a longer conversation.
RenderedChat render_answers(const Conversation& conversation, const ChatTemplate& chat);

// The tokens of the whole text; learned are the tokens of which some byte belongs to an answer, as transformers'
// return_assistant_tokens_mask has it.
EncodedChat encode_chat(const Conversation& conversation, const ChatTemplate& chat,
                        const Tokenizer& tokenizer);

// The tokens of the prompt, of the answer, and the one that ends a document, if the tokenizer has one. Learned are all
// but the prompt's.
EncodedChat encode_prompt(const PromptAnswer& text, const Tokenizer& tokenizer);

}  // namespace trifold
