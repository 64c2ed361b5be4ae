# SPDX-License-Identifier: Apache-2.0
# fuzz/fuzz_NAME.c is one libFuzzer program; its seeds lie in fuzz/corpus/NAME.
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE tacit_static)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  list(APPEND names ${name})
endforeach()
add_custom_target(fuzzers DEPENDS ${names})
