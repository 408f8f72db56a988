# Helpers shared by every room.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(TRIFOLD_CCACHE ccache)
if(TRIFOLD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRIFOLD_CCACHE})
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # With precompiled headers (TrifoldOutsideHeaders.cmake) it asks for that. No file uses __TIME__ or defines a macro
    # for an outside header.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TRIFOLD_CCACHE})
  endif()
endif()

add_library(trifold_options INTERFACE)
target_compile_options(trifold_options INTERFACE -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 reports overlapping copies in every "text" + std::string (GCC bug 105651, fixed in 13).
  target_compile_options(trifold_options INTERFACE -Wno-restrict)
endif()
# A joined build compiles a whole room at once, a large one in two or three parts: a small part would spend most of its
# time reading the same headers again.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A source file included by the joined one is not a header: its nested classes may use types of anonymous namespaces,
  # and shadowing between files is harmless.
  target_compile_options(trifold_options INTERFACE -Wno-subobject-linkage -Wno-shadow)
endif()
if(TRIFOLD_SANITIZE)
  target_compile_options(trifold_options INTERFACE -fsanitize=${TRIFOLD_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(trifold_options INTERFACE -fsanitize=${TRIFOLD_SANITIZE})
  # About fifty programs, 40 MB each with line numbers, are linked in a quarter of the time. Other builds keep the usual
  # linker: it takes libraries in order, so a room that needs one above it fails.
  find_program(TRIFOLD_LLD ld.lld)
  if(TRIFOLD_LLD)
    target_link_options(trifold_options INTERFACE -fuse-ld=lld)
  endif()
endif()

# trifold_quick_to_compile(TARGET [LEVEL]): code that spends its time in callees is optimised less, which speeds up its
# build and hardly slows it down: not at all under a sanitizer; at LEVEL, such as -Os, in a release build.
function(trifold_quick_to_compile target)
  if(TRIFOLD_SANITIZE)
    set(level -O0)
  elseif(ARGC GREATER 1 AND CMAKE_BUILD_TYPE MATCHES "^[Rr]elease$")
    set(level ${ARGV1})
  else()
    return()
  endif()
  target_compile_options(${target} PRIVATE ${level})
  set_target_properties(${target} PROPERTIES TRIFOLD_LEVEL ${level})
endfunction()

# Rooms that direct the work, which kernels, collectives and files do. Optimised for size they take three quarters of the
# time to compile and three fifths of the bytes.
set(TRIFOLD_DIRECTING_ROOMS config layout models graph plan checkpoint tasks run train recommend monitor convert bench rehearse)
# Rooms above the kernels that sanitizers need not optimise.
set(TRIFOLD_ROOMS_OVER_KERNELS ${TRIFOLD_DIRECTING_ROOMS} nn tensor_parallel pipeline data_parallel zero)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Here clang takes two fifths of the time without optimising; slower tests cost a third of what that saves. gcc takes
  # nearly as long.
  list(APPEND TRIFOLD_ROOMS_OVER_KERNELS comm optim mesh data clicks preprocess embedding)
endif()

# trifold_room(NAME [FOLDERS folders...] [ROOMS lower rooms...] [LIBS outside libraries...]): one static library of all
# .cpp files in the calling folder and in these subfolders. Only the rooms named here are linked, so that an upward
# include fails to link.
function(trifold_room name)
  cmake_parse_arguments(arg "" "" "FOLDERS;ROOMS;LIBS" ${ARGN})
  list(TRANSFORM arg_FOLDERS REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cpp")
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${arg_FOLDERS})
  add_library(trifold_${name} STATIC ${sources})
  target_include_directories(trifold_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM arg_ROOMS PREPEND trifold_)
  target_link_libraries(trifold_${name} PUBLIC ${arg_ROOMS} ${arg_LIBS} PRIVATE trifold_options)
  if(name IN_LIST TRIFOLD_DIRECTING_ROOMS)
    trifold_quick_to_compile(trifold_${name} -Os)
  elseif(name IN_LIST TRIFOLD_ROOMS_OVER_KERNELS)
    trifold_quick_to_compile(trifold_${name})
  endif()
  trifold_outside_headers(trifold_${name} room)
endfunction()
