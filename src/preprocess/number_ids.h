// The second half of preprocessing: a column of hashes, of 32 or 64 bits, becomes a column of ids.
//
//   id 0   a missing value (hash 0)
//   id 1   a value that is rare (seen less often than the threshold), or not in a given dictionary
//   2 ...  all others, in the order they are first seen: the dictionary
//
// Memory stays below a limit however many values there are. A dictionary that grows beyond it is made in
// partitions instead: each pass over the column counts only the values whose hash falls into its partition
// and writes those that stay, with the sample they were first seen in, to a file; merged by that sample these
// files give the same dictionary. Another pass for each partition writes its ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trifold {

struct IdColumnJob {
  std::string keys;          // file of hashes, one a sample
  int key_bytes = 4;         // of each of them: 4 or 8
  std::string scratch;       // prefix of the names of temporary files
  std::string ids;           // file to write: ids of id_bytes each
  std::string dictionary;    // file of hashes: that of id 2, 3, ...; written, or, where `given`, read
  std::optional<int> given;  // bytes of a hash in a dictionary that is there: 4, or 8 if keys have 8
  int64_t threshold = 1;     // times a value must be seen
  size_t memory = 0;         // bytes for the dictionary, about
};

struct IdColumnResult {
  int64_t rows = 0;  // ids are below it
  int id_bytes = 4;
  int dictionary_bytes = 4;  // of a hash in the dictionary: 4 where all fit
  int partitions = 1;        // 1: the dictionary fitted
};

// Bytes of an id where there are that many rows: 1, 2 or 4.
int id_bytes_for(int64_t rows);

// BadInput or Failure that names the file for one that cannot be read or written; temporary files are
// removed.
IdColumnResult number_ids(const IdColumnJob& job);

// The same for ids that are hashes, of 4 bytes, modulo `rows`: no dictionary.
IdColumnResult number_hashed_ids(const IdColumnJob& job, int64_t rows);

}  // namespace trifold
