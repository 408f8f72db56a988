# Outside headers, read once by clang. A joined build (CMAKE_UNITY_BUILD) has about seventy files to compile, and clang would
# spend a second and a half of each on the standard library, fmt, nlohmann_json and GoogleTest before it reads a line of
# Trifold's. So they are compiled once for all targets with the same options, as a precompiled header that every file
# starts with. gcc gains half as much a file, and spends that on writing its larger precompiled headers: it has none.
#
# None of our own headers is among them: what a change of ours compiles again stays as it is. A file that forgets to include
# an outside header is found where gcc compiles it alone (`cmake --preset release` in a new folder), and a header that does by
# `header_self_containment`.
set(TRIFOLD_OUTSIDE_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstddef>
  <cstdint> <cstdlib> <cstring> <deque> <exception> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex>
  <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <type_traits> <unordered_map>
  <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

# trifold_outside_headers(TARGET room|test): the target, which only trifold_quick_to_compile has given options of its own,
# starts with these headers. The first target with other options than those before brings the object library that
# compiles them so: programs are compiled for other addresses than libraries, and a precompiled header is of one level of
# optimisation.
function(trifold_outside_headers target kind)
  if(NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  get_target_property(level ${target} TRIFOLD_LEVEL)
  if(NOT level)
    set(level "")
  endif()
  set(headers trifold_outside_headers_${kind}${level})
  if(NOT TARGET ${headers})
    set(source ${PROJECT_BINARY_DIR}/outside_headers/${kind}${level}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "// Only there to be compiled with the headers.\n" @ONLY)
    add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${source})
    set_target_properties(${headers} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(${headers} PRIVATE fmt::fmt nlohmann_json::nlohmann_json trifold_options)
    target_precompile_headers(${headers} PRIVATE ${TRIFOLD_OUTSIDE_HEADERS})
    if(kind STREQUAL "test")
      set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${headers} PRIVATE -fPIE $<$<CONFIG:Release>:-O1>)
      target_precompile_headers(${headers} PRIVATE <gtest/gtest.h>)
      target_link_libraries(${headers} PRIVATE GTest::gtest)
    endif()
    if(level)
      target_compile_options(${headers} PRIVATE ${level})
    endif()
    target_compile_options(${headers} PRIVATE -Xclang -fno-pch-timestamp)  # ccache asks for it
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()
