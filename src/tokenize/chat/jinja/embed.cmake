# Writes render.py as a C++ string: cmake -DFROM=render.py -DTO=render_py.inc -P embed.cmake. Python reads it when the
# module is used, so that no file has to be found then.
file(READ ${FROM} text)
file(WRITE ${TO} "R\"embedded(${text})embedded\"\n")
