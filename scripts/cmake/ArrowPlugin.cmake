# magister_arrow.so: Parquet and Arrow files through Arrow's C++ library, which the pyarrow wheel brings with its headers. Built where the
# wheel is (scripts/setup.sh data, or test), and loaded by the program when a data set needs it. Why: src/decisions/027-arrow-as-a-plug-in.md
set(MAGISTER_PYARROW_DIR "$ENV{MAGISTER_PYARROW_DIR}" CACHE PATH "A pyarrow that is there already: the folder with include/ and libarrow.so.* (default: of MAGISTER_VENV)")
if(MAGISTER_PYARROW_DIR)
  set(PYARROW_ROOT ${MAGISTER_PYARROW_DIR})
else()
  file(GLOB PYARROW_ROOT ${MAGISTER_VENV}/lib/python3*/site-packages/pyarrow)
endif()
file(GLOB ARROW_LIBRARY ${PYARROW_ROOT}/libarrow.so.*00)
file(GLOB PARQUET_LIBRARY ${PYARROW_ROOT}/libparquet.so.*00)
set(MAGISTER_HAVE_ARROW OFF)
if(PYARROW_ROOT AND ARROW_LIBRARY AND PARQUET_LIBRARY AND EXISTS ${PYARROW_ROOT}/include/parquet/arrow/reader.h)
  set(MAGISTER_HAVE_ARROW ON)
  file(GLOB arrow_sources RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/io/dataset/*_arrow.cpp)
  compiled_together(arrow_sources arrow ${arrow_sources})
  add_library(magister_arrow MODULE ${arrow_sources})
  target_include_directories(magister_arrow PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(magister_arrow SYSTEM PRIVATE ${PYARROW_ROOT}/include)
  target_link_libraries(magister_arrow PRIVATE ${PARQUET_LIBRARY} ${ARROW_LIBRARY})
  # Hidden: what the program has of the same names is its own. Only magister_open_table_1 is seen.
  # dlopen looks along the run path of the program: the build folder here, lib/magister where it is installed.
  list(APPEND CMAKE_BUILD_RPATH ${CMAKE_BINARY_DIR})
  set_target_properties(magister_arrow PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} BUILD_RPATH "${PYARROW_ROOT}" INSTALL_RPATH "$ORIGIN;${PYARROW_ROOT}")
  install(TARGETS magister_arrow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/magister)
endif()
message(STATUS "Parquet and Arrow data sets: ${MAGISTER_HAVE_ARROW}")
