# SPDX-License-Identifier: Apache-2.0
# tests/ROOM/test_NAME.c is one cmocka program and one ctest entry ROOM.NAME.
find_package(PkgConfig REQUIRED)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/test_*.c)
file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.c)
if(support)
  add_library(tacit_test_support STATIC ${support})
  target_link_libraries(tacit_test_support PUBLIC tacit_static PkgConfig::CMOCKA)
  target_include_directories(tacit_test_support PUBLIC ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(tacit_test_support PRIVATE TACIT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endif()
foreach(test ${tests})
  get_filename_component(name ${test} NAME_WE)
  get_filename_component(folder ${test} DIRECTORY)
  get_filename_component(room ${folder} NAME)
  string(REGEX REPLACE "^test_" "" short ${name})
  set(target test_${room}_${short})
  add_executable(${target} ${test})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE tacit_static PkgConfig::CMOCKA)
  if(support)
    target_link_libraries(${target} PRIVATE tacit_test_support)
  endif()
  target_compile_definitions(${target} PRIVATE TACIT_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    TACIT_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${room}.${short} COMMAND ${target})
  set_tests_properties(${room}.${short} PROPERTIES TIMEOUT 600)
endforeach()

# Tests that are scripts: exit code 77 means skipped, and the reason is printed.
add_test(NAME conformance.serial COMMAND ${CMAKE_SOURCE_DIR}/scripts/run-conformance
  ${CMAKE_BINARY_DIR} --quiet WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(conformance.serial PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200 PROCESSORS 2)
file(GLOB cli_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cli/test-*)
foreach(script ${cli_tests})
  get_filename_component(name ${script} NAME)
  string(REGEX REPLACE "^test-" "" short ${name})
  add_test(NAME cli.${short} COMMAND ${script} ${CMAKE_BINARY_DIR}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(cli.${short} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1200)
endforeach()

# The wire reader's peer: protobuf-c, where it is installed.
find_program(PROTOC_C protoc-c)
pkg_check_modules(PROTOBUF_C QUIET IMPORTED_TARGET libprotobuf-c)
if(TARGET test_load_wire AND PROTOC_C AND PROTOBUF_C_FOUND)
  set(peer ${CMAKE_BINARY_DIR}/peer)
  file(MAKE_DIRECTORY ${peer})
  add_custom_command(OUTPUT ${peer}/onnx_subset.pb-c.c ${peer}/onnx_subset.pb-c.h
    COMMAND ${PROTOC_C} --c_out=${peer} --proto_path=${CMAKE_SOURCE_DIR}/tests/load
      ${CMAKE_SOURCE_DIR}/tests/load/onnx_subset.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/tests/load/onnx_subset.proto)
  target_sources(test_load_wire PRIVATE ${peer}/onnx_subset.pb-c.c)
  set_source_files_properties(${peer}/onnx_subset.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
  target_include_directories(test_load_wire PRIVATE ${peer})
  target_compile_definitions(test_load_wire PRIVATE TACIT_HAVE_PROTOBUF_C=1)
  target_link_libraries(test_load_wire PRIVATE PkgConfig::PROTOBUF_C)
endif()
