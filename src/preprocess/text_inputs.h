// What preprocessing finds out about all text inputs before it reads any of them.
#pragma once

#include <string>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

// The inputs without those texts that hold nothing but blank lines, as Spark and split(1) write for empty parts. If all
// are like that, the first one, whose reader says so.
std::vector<std::string> without_empty_texts(const std::vector<std::string>& inputs);

// The quoting of fields between `separator` in all inputs: Quotes for commas; otherwise what the first lines of any
// input show (quoting_of in clicks/click_layout.h), and Quotes if some show Quotes and others None.
Quoting quoting_of_inputs(const std::vector<std::string>& inputs, char separator);

}  // namespace trifold
