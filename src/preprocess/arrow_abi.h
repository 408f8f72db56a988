// The "Arrow C data interface" and "C stream interface" of Apache Arrow's specification: plain C structs in which
// libraries pass columns to each other. The members have the specification's names and order, so the layout
// depends neither on the version of Arrow nor on the compiler; the Parquet module exchanges columns with it.
//
// The receiver of a struct owns it and calls its `release` once; `release` then sets itself to null.
#pragma once

#include <cstdint>

extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

// The type of a column. `format` encodes it: "l" is int64, "+l" a list of its child.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;  // type of the values if the column has indices of a dictionary; else null
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

// Values of such a type. buffers[0] has a bit per value, 0 for a missing one; null: none is missing.
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;  // index of the first value in the buffers
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

// A sequence of arrays of one type; at its end get_next returns a released array (release is null). Functions return 0,
// or an error code of errno.h; get_last_error then has a message, valid until the next call.
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};

#endif
}
