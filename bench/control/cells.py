CONFIG = ""
def run(stack, manager): return []
