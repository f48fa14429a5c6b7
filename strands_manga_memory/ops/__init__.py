"""Tools that the command line offers to operators of a deployment.

``doctor`` checks a deployment. ``cost`` and ``advice`` help to plan a deployment. ``importing`` imports
sessions. ``inspection`` shows a stored conversation. ``provisioning`` returns templates and
permissions for the setup. A running agent imports none of these tools.
"""
