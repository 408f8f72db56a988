// Checks on the beginnings of all text inputs, made before preprocessing reads any of them.
#pragma once

#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

// The inputs except texts that are empty or begin with nothing but blanks, as Spark and split(1) write for empty parts.
// If all are like that, the first one alone, so that its reader reports the error.
std::vector<std::string> without_empty_texts(const std::vector<std::string>& inputs);

// How fields are quoted in all inputs, which `separator` separates: Quotes for commas; otherwise as the first lines of
// any input show (quoting_of in clicks/click_layout.h), and Quotes if inputs contradict each other.
Quoting quoting_of_inputs(const std::vector<std::string>& inputs, char separator);

}  // namespace trifold
