// The second pass of preprocessing: the hashes of each table become ids (preprocess/ids/number_ids.h), and the table
// gets its dictionary.
#pragma once

#include <map>
#include <string>

#include "clicks/click_format.h"
#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "preprocess/ids/unknown_ids.h"
#include "preprocess/parse_clicks.h"
#include "preprocess/preprocess.h"

namespace trifold {

struct NumberingJob {
  const PreprocessOptions& options;
  const ClickFolder* given;       // the folder of options.dictionaries_of, or null
  const ClickColumnWriter& keys;  // has written all hashes; their files are removed
  std::string folder;             // where ids and dictionaries are written
  int key_bytes = 8;              // bytes per hash
};

struct NumberedTables {
  int partitioned = 0;                // tables whose dictionary did not fit into memory at once
  std::map<int, UnknownIds> unknown;  // by column, if its dictionary may lack values
};

// Numbers the columns of several tables at a time and completes folder.tables. `progress` gets the number of tables
// that are done, from one thread at a time.
NumberedTables number_tables(const NumberingJob& job, ClickFolder& folder, ThreadPool& pool,
                             FunctionRef<void(int done)> progress);

}  // namespace trifold
