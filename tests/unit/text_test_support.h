// Helpers for tests of the text room: small data sets, with the files of support/files.h.
#pragma once

#include <string>
#include <vector>

#include "support/files.h"
#include "text/indexed_writer.h"

namespace trifold::test {

// Documents of one sequence each.
inline void write_documents(const std::string& prefix, TokenType type,
                            const std::vector<std::vector<int32_t>>& documents) {
  IndexedWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.add(document);
    writer.end_sequence();
    writer.end_document();
  }
  writer.finish();
}

}  // namespace trifold::test
