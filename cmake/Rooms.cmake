# A room is one folder of muoncore/ = one static library; its tests are one executable.
#
# muoncore_room(NAME DEPS room... LIBS target... DEFINES name=value...)
#   every *.cpp of the folder; DEPS are the rooms that its files may include (held by tools/check_layers.py);
#   DEFINES are private
# muoncore_room_tests(NAME [LIBS target...])
#   every *_test.cpp of tests/NAME; one entry of ctest

add_library(muoncore_flags INTERFACE)
target_compile_features(muoncore_flags INTERFACE cxx_std_20)
target_compile_options(muoncore_flags INTERFACE -Wall -Wextra -Werror)
target_include_directories(muoncore_flags INTERFACE "${PROJECT_SOURCE_DIR}")

file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/pch.cpp" CONTENT "")  # written once: rewriting it would rebuild all
add_library(muoncore_pch OBJECT "${PROJECT_BINARY_DIR}/pch.cpp")
target_link_libraries(muoncore_pch PRIVATE muoncore_flags muoncore::torch)
target_precompile_headers(muoncore_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/pch.h")

# Files without LibTorch are compiled without the precompiled header: see tools/without_torch.py. A file that gains or loses
# torch later still compiles; the next configure sorts it anew.
function(muoncore_use_pch target)
  target_precompile_headers(${target} REUSE_FROM muoncore_pch)
  execute_process(COMMAND ${MUONCORE_PYTHON} "${PROJECT_SOURCE_DIR}/tools/without_torch.py" "${PROJECT_SOURCE_DIR}" ${ARGN}
                  OUTPUT_VARIABLE without_torch COMMAND_ERROR_IS_FATAL ANY)
  set_source_files_properties(${without_torch} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

function(muoncore_room name)
  cmake_parse_arguments(PARSE_ARGV 1 R "" "" "DEPS;LIBS;DEFINES")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(NOT sources)
    add_library(muoncore_${name} INTERFACE)
    return()
  endif()
  add_library(muoncore_${name} STATIC ${sources})
  target_link_libraries(muoncore_${name} PUBLIC $<BUILD_INTERFACE:muoncore_flags> ${R_LIBS})
  target_include_directories(muoncore_${name} INTERFACE $<INSTALL_INTERFACE:include>)
  set_target_properties(muoncore_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_definitions(muoncore_${name} PRIVATE ${R_DEFINES})
  foreach(dep IN LISTS R_DEPS)
    target_link_libraries(muoncore_${name} PUBLIC muoncore_${dep})
  endforeach()
  target_link_libraries(muoncore_${name} PUBLIC muoncore::torch)
  muoncore_use_pch(muoncore_${name} ${sources})
endfunction()

function(muoncore_room_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 R "" "" "LIBS")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${name}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE muoncore_${name} muoncore::torch GTest::gmock GTest::gtest_main ${R_LIBS})
  muoncore_use_pch(test_${name} ${sources})
  target_compile_definitions(test_${name} PRIVATE
    MUONCORE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MUONCORE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  add_test(NAME ${name} COMMAND test_${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
endfunction()
