"""Tools for operators, used by the command line only.

``doctor`` checks a deployment, ``cost`` and ``advice`` plan one, ``importing`` and ``exporting`` move sessions between
deployments, ``cloudformation`` and ``permissions`` print resources to set up. A running agent imports none of them.
"""
