// Enums whose values have names, used on the command line, in configuration files, in checkpoints and in messages. A
// specialisation of Names next to the enum lists them, in the order in which --help shows them.
#pragma once

#include <optional>
#include <string_view>

#include "core/dtype.h"  // before the templates: calls of its name_of must not ask whether DType has names yet

namespace trifold {

template <class E>
struct Named {
  E value;
  std::string_view name;
};

// Specialise with `static constexpr Named<E> kAll[]` for an enum with names; it lists every value that an option may
// have.
template <class E>
struct Names;

template <class E>
concept HasNames = requires {
  Names<E>::kAll[0];
};

template <HasNames E>
constexpr std::string_view name_of(E value) {
  for (const Named<E>& entry : Names<E>::kAll)
    if (entry.value == value) return entry.name;
  return "?";
}

// The value with exactly this name.
template <HasNames E>
constexpr std::optional<E> value_named(std::string_view name) {
  for (const Named<E>& entry : Names<E>::kAll)
    if (entry.name == name) return entry.value;
  return std::nullopt;
}

}  // namespace trifold
