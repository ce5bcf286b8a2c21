uprobe0: 42 instructions
10000140  push rbp
10000141  mov rbp,rsp
10000144  sub rsp,10h
10000148  lea rsi,[40C000h]
1000014f  mov rsi,[rsi+8]
10000153  cmp rsi,0
10000157  jne 00000000100001F2h
1000015d  mov rax,[rdi+0A8h]
10000164  mov [rbp-8],eax
10000167  lea rdi,[10000000h]
1000016e  mov rsi,rbp
10000171  add rsi,0FFFFFFFFFFFFFFF8h
10000175  mov eax,[rsi]
10000177  cmp eax,100h
1000017d  jae 00000000100001B6h
10000183  imul rax,8
1000018a  mov r9d,fs:[0FFFFFFFFFFFFFF64h]
10000193  cmp r9d,4
10000197  sbb r11d,r11d
1000019a  and r9d,r11d
1000019d  imul r9,800h
100001a4  add rax,r9
100001a7  lea r11,[1180h]
100001ae  add rax,r11
100001b1  jmp 00000000100001B8h
100001b6  xor eax,eax
100001b8  mov rdi,rax
100001bb  cmp rax,0
100001bf  je 00000000100001D8h
100001c5  mov esi,1
100001ca  lock add [rdi],rsi
100001ce  mov eax,0
100001d3  jmp 00000000100001F7h
100001d8  lea rdi,[40C040h]
100001df  mov esi,1
100001e4  lock add [rdi],rsi
100001e8  mov eax,0
100001ed  jmp 00000000100001F7h
100001f2  mov eax,0
100001f7  add rsp,10h
100001fb  pop rbp
100001fc  ret

