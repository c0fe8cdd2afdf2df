# LibTorch as imported targets, taken from the folder of the installed wheel (CPU and CUDA wheels alike).
# find_package(Torch) of a CUDA wheel fails where no full CUDA toolkit is installed; these targets do not.
# Input:  MUONCORE_PYTHON  the interpreter that has torch (default: .venv/bin/python of this checkout)
#         MUONCORE_TORCH   the torch folder itself; asked of MUONCORE_PYTHON when empty
# Output: target muoncore::torch
set(MUONCORE_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that has torch")
set(MUONCORE_TORCH "" CACHE PATH "folder of the torch package")

if(NOT MUONCORE_TORCH)
  execute_process(
    COMMAND ${MUONCORE_PYTHON} -c
            "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE torch_folder OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE rc ERROR_VARIABLE err)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "no torch package found with ${MUONCORE_PYTHON}: run 'make setup', or set "
                        "MUONCORE_PYTHON to an interpreter that has torch 2.13\n${err}")
  endif()
  set(MUONCORE_TORCH "${torch_folder}" CACHE PATH "folder of the torch package" FORCE)
endif()
foreach(needed include/ATen/ATen.h lib/libc10.so lib/libtorch_cpu.so)
  if(NOT EXISTS "${MUONCORE_TORCH}/${needed}")
    message(FATAL_ERROR "MUONCORE_TORCH=${MUONCORE_TORCH} has no ${needed}")
  endif()
endforeach()
message(STATUS "LibTorch: ${MUONCORE_TORCH}")

add_library(muoncore::torch INTERFACE IMPORTED GLOBAL)
target_include_directories(muoncore::torch INTERFACE
  "${MUONCORE_TORCH}/include" "${MUONCORE_TORCH}/include/torch/csrc/api/include")
target_link_libraries(muoncore::torch INTERFACE
  "${MUONCORE_TORCH}/lib/libc10.so" "${MUONCORE_TORCH}/lib/libtorch_cpu.so")
# Without -fopenmp in the including file, at::parallel_for runs serially and says nothing (tests/core/parallel_test.cpp
# holds it). At link time the wheel's own libgomp serves both: two OpenMP runtimes in one process would fight.
target_compile_options(muoncore::torch INTERFACE -fopenmp)
file(GLOB torch_gomp "${MUONCORE_TORCH}/lib/libgomp*.so*")
if(torch_gomp)
  list(GET torch_gomp 0 torch_gomp)
  target_link_libraries(muoncore::torch INTERFACE "${torch_gomp}")
else()
  target_link_options(muoncore::torch INTERFACE -fopenmp)
endif()
if(EXISTS "${MUONCORE_TORCH}/lib/libtorch_cuda.so")
  # Loaded for its registrations only: no header of ours includes CUDA.
  target_link_libraries(muoncore::torch INTERFACE
    -Wl,--no-as-needed "${MUONCORE_TORCH}/lib/libtorch_cuda.so" "${MUONCORE_TORCH}/lib/libc10_cuda.so" -Wl,--as-needed)
endif()
target_link_options(muoncore::torch INTERFACE "-Wl,-rpath,${MUONCORE_TORCH}/lib")
# torch bundles fmt 12, header-only for us; g++ 12 has no <format>.
target_compile_definitions(muoncore::torch INTERFACE FMT_HEADER_ONLY)
