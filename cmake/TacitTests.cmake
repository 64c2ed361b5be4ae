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
